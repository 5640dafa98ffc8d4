// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is the own server in a process of its own.
type child struct {
	port, pid int

	cmd   *exec.Cmd
	lines *bufio.Scanner // its standard output behind the address
	once  sync.Once
	last  []string
}

// startOwn starts the own server, which takes turns as plan says.
func startOwn(ctx context.Context, plan schedule) (*child, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(path, "server", "--phase", plan.length.String(), "--epoch", strconv.FormatInt(plan.epoch, 10))
	cmd.Stderr = os.Stderr
	apart(cmd)
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("making the own server's pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the own server: %w", err)
	}
	c := &child{cmd: cmd, pid: cmd.Process.Pid, lines: bufio.NewScanner(output)}
	// A server that hangs before it prints is killed with ctx.
	defer context.AfterFunc(ctx, func() { cmd.Process.Kill() })()
	if !c.lines.Scan() {
		c.stop()
		return nil, errors.New("starting the own server: it ended without saying its address")
	}
	u, err := url.Parse(c.lines.Text())
	if err == nil {
		c.port, err = strconv.Atoi(u.Port())
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("reading the own server's address: %w", err)
	}
	return c, nil
}

// stop ends the server and returns what it printed at its end. Later calls
// return the same.
func (c *child) stop() []string {
	c.once.Do(func() {
		c.cmd.Process.Signal(unix.SIGTERM)
		kill := time.AfterFunc(5*time.Second, func() { c.cmd.Process.Kill() })
		defer kill.Stop()
		for c.lines.Scan() {
			c.last = append(c.last, c.lines.Text())
		}
		c.cmd.Wait()
	})
	return c.last
}

// diagnose runs the agent on the loads' ports and returns its exit code. What it
// prints goes to out and log. When ctx ends it gets SIGINT.
func diagnose(ctx context.Context, s settings, loads []*load, out, log io.Writer) (int, error) {
	args := []string{"diagnose", "--for", s.duration.String()}
	for _, l := range loads {
		args = append(args, "--port", strconv.Itoa(l.port))
	}
	args = append(args, s.extra...)
	fmt.Fprintf(log, "demo: %s %s\n", s.agent, strings.Join(args, " "))
	ctx, cancel := context.WithTimeout(ctx, s.duration+grace)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.agent, args...)
	cmd.Stdout, cmd.Stderr = out, log
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	apart(cmd)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return exitInternal, fmt.Errorf("running diagnose: it did not end within %v after its time", grace)
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	case err != nil:
		return exitInternal, fmt.Errorf("running diagnose: %w", err)
	}
	return exitOK, nil
}

// apart gives a child a process group of its own, so that Ctrl-C reaches this
// program alone, which stops all in order, and lets it die with this program.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
}
