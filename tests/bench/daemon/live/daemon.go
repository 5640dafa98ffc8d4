// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const startPatience = 40 * time.Second

// Daemon is a running `velo-agent run`.
type Daemon struct {
	PID    int // the daemon itself, without rights
	Helper int
	URL    string // of its metrics

	dir    string
	cmd    *exec.Cmd
	ended  chan struct{}
	client *http.Client
}

// Start builds the binary, starts it with what watch says (the lines below "watch:" of
// the configuration, indented) and returns when its probes serve.
func Start(ctx context.Context, watch string) (*Daemon, error) {
	dir, err := os.MkdirTemp("", "velo-live-")
	if err != nil {
		return nil, fmt.Errorf("making the daemon's folder: %w", err)
	}
	d := &Daemon{dir: dir, ended: make(chan struct{}), client: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}}}
	if err := d.start(ctx, watch); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

func (d *Daemon) start(ctx context.Context, watch string) error {
	// The user that the daemon becomes must be let through to the binary.
	if err := os.Chmod(d.dir, 0o755); err != nil {
		return err
	}
	exe := filepath.Join(d.dir, "velo-agent")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", exe, "./cmd/velo-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the daemon: %w: %s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	d.URL = fmt.Sprintf("http://127.0.0.1:%d", port)
	conf := fmt.Sprintf("listen: 127.0.0.1:%d\nsocket:\n  path: %s/run/agent.sock\nrecord:\n  dir: %s/record\nwatch:\n%s", port, d.dir, d.dir, watch)
	file := filepath.Join(d.dir, "velo-agent.yaml")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		return err
	}
	log, err := os.Create(d.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(exe, "run", "--config", file)
	d.cmd.Stderr, d.cmd.Dir = log, "/"
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is the rig's to handle
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	d.PID = d.cmd.Process.Pid
	go func() {
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	return d.awaitReady(ctx)
}

func (d *Daemon) logFile() string { return filepath.Join(d.dir, "log") }

func (d *Daemon) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		resp, err := d.get(ctx, "/readyz", nil)
		if err == nil {
			resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the daemon's probes: %w; it said: %s", ctx.Err(), d.Log())
		case <-d.ended:
			return fmt.Errorf("the daemon ended (%v); it said: %s", d.cmd.ProcessState, d.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.PID, d.PID))
	if err != nil {
		return fmt.Errorf("looking for the helper: %w", err)
	}
	if d.Helper, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
		return fmt.Errorf("looking for the helper among the children %q of the daemon: %w", b, err)
	}
	return nil
}

func (d *Daemon) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	return d.client.Do(req)
}

// Log returns the end of what the daemon and its helper logged.
func (d *Daemon) Log() string {
	b, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// Stop ends the daemon, waits for it and its helper, and removes its folder.
func (d *Daemon) Stop() error {
	d.client.CloseIdleConnections()
	if d.PID == 0 {
		return os.RemoveAll(d.dir)
	}
	err := d.cmd.Process.Signal(unix.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-d.ended:
	case <-time.After(10 * time.Second):
		err = errors.Join(errors.New("the daemon did not end within 10 s of SIGTERM and was killed"), d.cmd.Process.Kill())
		<-d.ended
	}
	return errors.Join(err, d.helperGone(), os.RemoveAll(d.dir))
}

// helperGone waits for the helper, which ends with the daemon.
func (d *Daemon) helperGone() error {
	for range 100 {
		if d.Helper == 0 || unix.Kill(d.Helper, 0) != nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("the helper %d outlives its daemon", d.Helper)
}

// freePort returns a port below those that the kernel gives to clients.
func freePort() (int, error) {
	for port := 19_000; port < 20_000; port++ {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port from 19000 to 19999 is free")
}
