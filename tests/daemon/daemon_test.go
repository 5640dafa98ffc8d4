// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

// daemon is a running velo-agent with folders and addresses of its own.
type daemon struct {
	*live.Daemon
	tcp  *http.Client
	unix *http.Client // as root
}

// start starts a daemon with what settings (YAML) add to the fixture's own, and waits
// until it is ready. It is stopped with the test.
func start(t *testing.T, settings string) *daemon {
	t.Helper()
	d := prepare(t, settings)
	d.run(t)
	d.ready(t)
	return d
}

// prepare makes the folders and the configuration; nothing runs yet.
func prepare(t *testing.T, settings string) *daemon {
	t.Helper()
	needProbes(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := live.Prepare(path, dir, settings)
	if err != nil {
		t.Fatal(err)
	}
	return &daemon{d, client(t, "tcp", d.Listen), client(t, "unix", d.Socket())}
}

// configure writes the settings of the test beside the fixture's.
func (d *daemon) configure(t *testing.T, settings string) {
	t.Helper()
	if err := d.Configure(settings); err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) run(t *testing.T) {
	t.Helper()
	if err := d.Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log := d.said()
			t.Logf("the log of the daemon:\n%s", log[max(0, len(log)-12<<10):])
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// ready waits until the probes answer.
func (d *daemon) ready(t *testing.T) {
	t.Helper()
	if err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// said is all that the daemon and its helper logged since it was started.
func (d *daemon) said() string {
	b, err := os.ReadFile(d.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// signal sends a signal to the daemon itself.
func (d *daemon) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := d.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait waits for the daemon's end and returns its exit code.
func (d *daemon) wait(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-d.Ended():
	case <-time.After(within):
		t.Fatalf("the daemon still runs after %v", within)
	}
	return d.ExitCode()
}

// stop ends the daemon in order.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.signal(t, unix.SIGTERM)
	if code := d.wait(t, patience); code != 0 {
		t.Errorf("stopped with code %d", code)
	}
}

// reload asks for a reload over the socket.
func (d *daemon) reload() (status int, body string, err error) {
	resp, err := d.unix.Post("http://daemon/-/reload", "", nil)
	if err != nil {
		return 0, "", err
	}
	return answerOf(resp)
}

// client speaks HTTP to one address, with connections that the test's end closes.
func client(t *testing.T, network, address string) *http.Client {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

func get(c *http.Client, path string) (status int, body string, err error) {
	resp, err := c.Get("http://daemon" + path)
	if err != nil {
		return 0, "", err
	}
	return answerOf(resp)
}

func answerOf(resp *http.Response) (status int, body string, err error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// velo runs a verb of the program and returns what it prints, and its exit code.
func velo(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var ended *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
