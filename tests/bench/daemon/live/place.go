// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// DropIn is the file of the settings, which problems of the configuration name.
const DropIn = "10-settings.yaml"

// Config is the file of the configuration, beside which is that of the settings.
func (d *Daemon) Config() string { return filepath.Join(d.dir, "velo-agent.yaml") }

// Socket is the Unix socket.
func (d *Daemon) Socket() string { return filepath.Join(d.dir, "socket", "agent.sock") }

// Record is the folder of the record.
func (d *Daemon) Record() string { return filepath.Join(d.dir, "state", "record") }

// LogFile is what the daemon and its helper log into, anew with each start.
func (d *Daemon) LogFile() string { return filepath.Join(d.dir, "log") }

// Log returns the end of the log.
func (d *Daemon) Log() string {
	b, err := os.ReadFile(d.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// furnish makes the configuration: by itself the daemon watches a port that nobody
// listens on, and closes a window every second.
func (d *Daemon) furnish(settings string) error {
	// The user that the daemon becomes must be let through to its folders.
	if err := errors.Join(os.Chmod(d.dir, 0o755), os.Mkdir(d.Config()+".d", 0o755)); err != nil {
		return fmt.Errorf("making the daemon's folder: %w", err)
	}
	own := fmt.Sprintf("listen: %s\nsocket: {path: %s}\nrecord: {dir: %s, every: 1s}\nwatch: {engines: false, ports: [1]}\n",
		d.Listen, d.Socket(), d.Record())
	if err := os.WriteFile(d.Config(), []byte(own), 0o644); err != nil {
		return err
	}
	return d.Configure(settings)
}

// Configure writes settings (YAML) that go over the daemon's own. One that runs reads them
// when it is told to.
func (d *Daemon) Configure(settings string) error {
	return os.WriteFile(filepath.Join(d.Config()+".d", DropIn), []byte(settings), 0o644)
}

// given are the ports that daemons of this process have, whether they run or not.
var given = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freeAddress returns a loopback address with a port below those that the kernel gives
// to clients, on which nobody listens.
func freeAddress() (string, error) {
	given.Lock()
	defer given.Unlock()
	const first, ports = 19_000, 1000
	begin := rand.IntN(ports) // other processes look for one too
	for i := range ports {
		port := first + (begin+i)%ports
		if given.ports[port] {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if l, err := net.Listen("tcp4", address); err == nil {
			given.ports[port] = true
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("no port from %d to %d is free", first, first+ports-1)
}
