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
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long is waited for what no time is promised for.
const patience = 45 * time.Second

// Daemon is a `velo-agent run` with a folder and an address of its own.
type Daemon struct {
	Listen string // address of its metrics
	URL    string // of its metrics
	PID    int    // the daemon itself, without rights; 0: it was never started
	Helper int    // since it was ready; 0: it has none

	program, dir string
	temporary    string // a folder that goes with the daemon, or none
	cmd          *exec.Cmd
	ended        chan struct{}
	client       *http.Client // over TCP
}

// Start builds the program, starts it with what watch says (the lines below "watch:" of
// the configuration, indented) and returns when its probes serve. Its folder goes with it.
func Start(ctx context.Context, watch string) (*Daemon, error) {
	dir, err := os.MkdirTemp("", "velo-live-")
	if err != nil {
		return nil, fmt.Errorf("making the daemon's folder: %w", err)
	}
	program, err := Build(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d, err := Prepare(program, dir, "record:\n  every: 10s\nwatch:\n"+watch)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.temporary = dir
	if err := errors.Join(d.Run(), d.Ready(ctx)); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// Prepare makes the files of a daemon in a folder that is there, with settings (YAML)
// that go over its own. Nothing runs yet.
func Prepare(program, dir, settings string) (*Daemon, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		Listen: address, URL: "http://" + address, program: program, dir: dir,
		client: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}},
	}
	return d, d.furnish(settings)
}

// Run starts the daemon, which may have run before.
func (d *Daemon) Run() error {
	log, err := os.Create(d.LogFile())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, ended := exec.Command(d.program, "run", "--config", d.Config()), make(chan struct{})
	cmd.Stderr, cmd.Dir = log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for who started it
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	d.cmd, d.ended, d.PID = cmd, ended, cmd.Process.Pid
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}

// Ready waits until the probes answer, asking over the Unix socket.
func (d *Daemon) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	local := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket())
	}}
	defer local.CloseIdleConnections()
	for {
		resp, err := get(ctx, &http.Client{Transport: local}, "http://daemon/readyz", nil)
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
	children := Children(d.PID)
	if len(children) != 1 {
		return fmt.Errorf("looking for the helper: the daemon has the children %v", children)
	}
	d.Helper = children[0]
	return nil
}

func (d *Daemon) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	return get(ctx, d.client, d.URL+path, header)
}

func get(ctx context.Context, c *http.Client, url string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	return c.Do(req)
}

// Signal sends a signal to the daemon itself.
func (d *Daemon) Signal(s os.Signal) error { return d.cmd.Process.Signal(s) }

// Ended is closed when the daemon that was started last has ended.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

// ExitCode is that of a daemon that has ended.
func (d *Daemon) ExitCode() int { return d.cmd.ProcessState.ExitCode() }

// Stop ends the daemon, if it runs, in order, and waits for it and its helper. One that
// Start started loses its folder.
func (d *Daemon) Stop() error {
	d.client.CloseIdleConnections()
	if d.PID == 0 {
		return os.RemoveAll(d.temporary)
	}
	err := d.Signal(unix.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-d.ended:
	case <-time.After(patience):
		err = errors.Join(fmt.Errorf("the daemon did not end within %v of SIGTERM and was killed", patience), d.cmd.Process.Kill())
		<-d.ended
	}
	return errors.Join(err, d.helperGone(), os.RemoveAll(d.temporary))
}

// helperGone waits for the helper, which ends with the daemon.
func (d *Daemon) helperGone() error {
	for end := time.Now().Add(patience); Running(d.Helper); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the helper %d outlives its daemon", d.Helper)
		}
	}
	return nil
}
