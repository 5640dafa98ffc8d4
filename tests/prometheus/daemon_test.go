// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/bpf"
)

// wantProbes skips where this machine gives no probes.
func wantProbes(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start a daemon with probes")
	}
	m, err := bpf.NewMaps()
	if err != nil {
		t.Skipf("needs the probes: %v", err)
	}
	m.Close()
}

// build builds the agent as it is shipped.
func build(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "velo-agent")
	cmd := exec.Command("go", "build", "-o", path, "../../cmd/velo-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	return path
}

// settings are what differs from one daemon to the next, as YAML has them.
type settings map[string]any

// daemon is one that runs.
type daemon struct {
	address string // of its metrics
	pid     int
	log     string
	dir     string   // of its files
	conf    settings // that it was started with
	stop    func()
}

// startDaemon starts a daemon that keeps its files in dir.
func startDaemon(t *testing.T, binary, dir, address string, conf settings) *daemon {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &daemon{address: address, log: filepath.Join(dir, "log"), dir: dir, conf: conf}
	conf["listen"] = address
	conf["socket"] = settings{"path": filepath.Join(dir, "socket", "agent.sock")}
	if conf["record"] == nil {
		conf["record"] = settings{"dir": filepath.Join(dir, "record"), "every": "1s"}
	}
	d.configure(t, conf)
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(binary, "run", "--config", filepath.Join(dir, "config.yaml"))
	cmd.Stderr, cmd.Stdout = log, log
	d.stop = start(t, cmd)
	d.pid = cmd.Process.Pid
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(d.log)
			t.Logf("the log of %s ends:\n%s", filepath.Base(dir), text[max(0, len(text)-4096):])
		}
	})
	return d
}

// configure writes the daemon's configuration.
func (d *daemon) configure(t *testing.T, conf settings) {
	t.Helper()
	text, err := yaml.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.dir, "config.yaml"), string(text))
}

// reload has the daemon read its configuration again, and waits for what it says.
func (d *daemon) reload(t *testing.T, want string) {
	t.Helper()
	if err := unix.Kill(d.pid, unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() error {
		text, err := os.ReadFile(d.log)
		if err == nil && !strings.Contains(string(text), want) {
			err = fmt.Errorf("after the reload the log does not say %q", want)
		}
		return err
	})
}

func (d *daemon) url(path string) string { return "http://" + d.address + path }

// get asks the daemon for a page that it must give.
func (d *daemon) get(t *testing.T, path string, header ...string) answer {
	t.Helper()
	a, err := get(client, d.url(path), header...)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, a.status, a.body)
	}
	return a
}

// helper is the process that holds the daemon's rights.
func (d *daemon) helper() (int, error) {
	of := fmt.Sprintf("/proc/%d/task/%d/children", d.pid, d.pid)
	text, err := os.ReadFile(of)
	if err != nil {
		return 0, err
	}
	for _, word := range strings.Fields(string(text)) {
		args, err := os.ReadFile("/proc/" + word + "/cmdline")
		if err == nil && strings.Contains(string(args), "\x00helper\x00") {
			return strconv.Atoi(word)
		}
	}
	return 0, errors.New("the daemon has no helper")
}
