// SPDX-License-Identifier: Apache-2.0

//go:build linux

package rights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the user and group of the unprivileged cases.
const nobody = 65534

// run starts the program with the case's rights and waits for its end. A thread
// of its own gives up what the case is without and then starts the program, which
// inherits it; the thread ends with the goroutine.
func (c *Case) run(ctx context.Context, program string, args ...string) (output, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if c.Nobody {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		for _, bit := range c.Ambient {
			cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, uintptr(bit))
		}
	}
	err := onThread(func() error {
		if err := c.shed(); err != nil {
			return fmt.Errorf("%w: %w", ErrCannot, err)
		}
		return cmd.Start()
	})
	if err != nil {
		return output{}, fmt.Errorf("starting the program: %w", err)
	}
	err = cmd.Wait()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return output{}, fmt.Errorf("waiting for the program: %w", err)
	}
	return output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}, nil
}

// shed takes away from the calling thread what the case is without. What leaves
// the bounding set, not even root gets by exec.
func (c *Case) shed() error {
	for _, bit := range c.Drop {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(bit), 0, 0, 0); err != nil {
			return fmt.Errorf("dropping capability %d: %w", bit, err)
		}
	}
	if !c.HideBTF {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/sys/kernel/btf", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("hiding /sys/kernel/btf: %w", err)
	}
	return nil
}

// onThread runs f on a thread that nothing else ever runs on.
func onThread(f func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		// The main thread cannot end, and /proc/PID/ns shows its namespaces: while
		// it is locked here, f runs on another one.
		if unix.Gettid() == unix.Getpid() {
			err := onThread(f)
			runtime.UnlockOSThread()
			failed <- err
			return
		}
		failed <- f() // never unlocked: the thread ends here
	}()
	return <-failed
}
