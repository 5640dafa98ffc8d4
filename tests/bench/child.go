// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// childEnv names the services of a child process.
const childEnv = "VELO_BENCH_CHILD"

// services makes the receivers that a child may serve, by name.
var services = map[string]func() any{
	"Agent":    func() any { return &AgentService{} },
	"Process":  func() any { return &Process{} },
	"Echo":     func() any { return &Echo{} },
	"PingPong": func() any { return &PingPong{} },
	"Streams":  func() any { return &Streams{} },
	"Load":     func() any { return &Load{} },
	"Holder":   func() any { return &Holder{} },
	"Dialer":   func() any { return &Dialer{} },
}

// MaybeChild serves and ends if this process was started as a child. Each main
// calls it first.
func MaybeChild() {
	names := os.Getenv(childEnv)
	if names == "" {
		return
	}
	server := rpc.NewServer()
	for name := range strings.SplitSeq(names, ",") {
		if err := server.RegisterName(name, services[name]()); err != nil {
			fmt.Fprintln(os.Stderr, "serving:", err)
			os.Exit(1)
		}
	}
	server.ServeConn(pipe{os.Stdin, os.Stdout}) // until the parent has gone
	os.Exit(0)
}

// Child is a child process.
type Child struct {
	PID int

	cmd    *exec.Cmd
	client *rpc.Client
}

// Nothing is the argument or the answer of a call that has none.
type Nothing struct{ Unused bool }

// Start starts a child that serves the named services and Process. More of its
// environment may follow.
func Start(service string, env ...string) (*Child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding one's own program: %w", err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), childEnv+"=Process,"+service), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is the parent's to handle
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the %s process: %w", service, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the %s process: %w", service, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s process: %w", service, err)
	}
	return &Child{PID: cmd.Process.Pid, cmd: cmd, client: rpc.NewClient(pipe{out, in})}, nil
}

// Call calls a method and waits for its answer.
func (c *Child) Call(method string, args, reply any) error {
	if err := c.client.Call(method, args, reply); err != nil {
		return fmt.Errorf("calling %s: %w", method, err)
	}
	return nil
}

// Stop ends the child: it ends with its input, or else is killed.
func (c *Child) Stop() {
	c.client.Close()
	kill := time.AfterFunc(3*time.Second, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	c.cmd.Wait()
}

type pipe struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipe) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }
