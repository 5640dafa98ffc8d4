// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/velo-agent/velo-agent/tests/rig/side"
)

// child is a process of a repetition.
type child struct {
	role   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  *json.Encoder
	out    *json.Decoder
	stderr bytes.Buffer
}

// startChild starts a program in a role, with so many threads (0: as many as the machine
// has cores; the Rust program: 2). It is killed when ctx ends.
func startChild(ctx context.Context, program, role string, threads int) (*child, error) {
	c := &child{role: role, cmd: exec.CommandContext(ctx, program, role)}
	if threads > 0 {
		c.cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", threads), fmt.Sprint("RIG_THREADS=", threads))
	}
	c.cmd.Stderr = &c.stderr
	c.cmd.WaitDelay = time.Second
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is the driver's to handle
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	c.in, c.lines, c.out = in, json.NewEncoder(in), json.NewDecoder(out)
	return c, nil
}

// call sends a command and waits for its answer.
func (c *child) call(command side.Command) (a side.Answer, err error) {
	if err = c.lines.Encode(command); err == nil {
		err = c.out.Decode(&a)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("the %s went away: %w", c.role, err)
	case a.Error != "":
		err = errors.New(a.Error)
	default:
		return a, nil
	}
	return a, fmt.Errorf("%s, %s: %w", c.role, command.Cmd, err)
}

// stop ends the process and returns what it complained of, the first lines.
func (c *child) stop() string {
	c.in.Close()
	kill := time.AfterFunc(3*time.Second, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.cmd.Wait() // how it ended says nothing that its answers did not
	text, _, _ := bytes.Cut(c.stderr.Bytes(), []byte("\n\n"))
	return string(text)
}
