// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is a running velo-agent with folders and addresses of its own.
type daemon struct {
	dir    string // world-readable: the daemon becomes nobody
	listen string
	cmd    *exec.Cmd
	log    *syncBuffer
	tcp    *http.Client
	unix   *http.Client // as root
	ended  chan struct{}
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "socket", "agent.sock") }
func (d *daemon) record() string { return filepath.Join(d.dir, "state", "record") }
func (d *daemon) pid() int       { return d.cmd.Process.Pid }

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
	d := &daemon{dir: t.TempDir(), listen: freeAddress(t)}
	for _, dir := range []string{d.dir, filepath.Dir(d.dir)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(d.config()+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("listen: %s\nsocket: {path: %s}\nrecord: {dir: %s, every: 1s}\nwatch: {engines: false, ports: [1]}\n", d.listen, d.socket(), d.record())
	if err := os.WriteFile(d.config(), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	d.configure(t, settings)
	d.tcp = client(t, "tcp", d.listen)
	d.unix = client(t, "unix", d.socket())
	return d
}

func (d *daemon) config() string { return filepath.Join(d.dir, "velo-agent.yaml") }

// dropIn is the file that configure writes, and that problems are reported of.
const dropIn = "10-test.yaml"

// configure writes the settings of the test beside the fixture's.
func (d *daemon) configure(t *testing.T, settings string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.config()+".d", dropIn), []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) run(t *testing.T) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "run", "--config", d.config())
	log, ended := &syncBuffer{}, make(chan struct{})
	cmd.Stderr = log
	cmd.WaitDelay = time.Second // the helper has the log too
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(ended) }()
	d.cmd, d.log, d.ended = cmd, log, ended
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the daemon:\n%s", log.tail(12<<10))
		}
		select {
		case <-ended:
			return
		default:
		}
		_ = cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the daemon did not stop")
			_ = cmd.Process.Kill()
			<-ended
		}
	})
}

// ready waits until the probes answer.
func (d *daemon) ready(t *testing.T) {
	t.Helper()
	eventually(t, "ready", patience, func() error {
		select {
		case <-d.ended:
			t.Fatalf("the daemon ended: %v", d.cmd.ProcessState)
		default:
		}
		status, body, err := get(d.unix, "/readyz")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
}

// signal sends a signal to the daemon itself.
func (d *daemon) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait waits for the daemon's end and returns its exit code.
func (d *daemon) wait(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-d.ended:
	case <-time.After(within):
		t.Fatalf("the daemon still runs after %v", within)
	}
	return d.cmd.ProcessState.ExitCode()
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

// freeAddress is a loopback address that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	defer l.Close()
	return l.Addr().String()
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

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) tail(n int) string {
	all := s.String()
	return all[max(0, len(all)-n):]
}
