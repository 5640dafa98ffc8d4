// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// A Hog is a SCHED_FIFO process that spins for a share of each period on one CPU.
// On a machine with one CPU left it starves what is pinned there.
type Hog struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartHog starts a hog of duty percent (1 to 90) on a CPU. It needs the right to
// real-time scheduling and ends after ten minutes at the latest.
func StartHog(ctx context.Context, cpu, duty int, period time.Duration) (*Hog, error) {
	command, err := buildC(ctx, "hog", "hog.c")
	if err != nil {
		return nil, fmt.Errorf("building the hog: %w", err)
	}
	h := &Hog{cmd: exec.CommandContext(ctx, command[0], "--cpu", strconv.Itoa(cpu),
		"--duty", strconv.Itoa(duty), "--period-us", strconv.FormatInt(period.Microseconds(), 10))}
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting the hog: %w", err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the hog: %w", err)
	}
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the hog: %w", err)
	}
	h.out = bufio.NewReader(out)
	if line, err := h.out.ReadString('\n'); line != "ready\n" {
		h.in.Close()
		return nil, fmt.Errorf("starting the hog (it needs CAP_SYS_NICE): %w", errors.Join(err, h.cmd.Wait()))
	}
	return h, nil
}

// Pause interrupts the hog, for undisturbed runs in between.
func (h *Hog) Pause() error { return h.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused hog go on.
func (h *Hog) Resume() error { return h.cmd.Process.Signal(syscall.SIGCONT) }

// Stop ends the hog, paused or not.
func (h *Hog) Stop() error {
	h.in.Close()
	if err := h.Resume(); err != nil {
		return fmt.Errorf("stopping the hog: %w", err)
	}
	_, _ = io.Copy(io.Discard, h.out) // its own account, until it has ended
	return h.cmd.Wait()
}
