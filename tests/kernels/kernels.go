// SPDX-License-Identifier: Apache-2.0

// Package kernels runs a static program inside Debian's older kernels, under
// qemu's emulation, and hands back what it printed. It owns the kernels' cache,
// the initramfs and the conversation over the serial console; what is measured
// in there belongs to the program. Nothing in an emulated machine says what
// anything costs, so no figure of time may be taken from it as one.
package kernels

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrNoQemu: qemu-system-x86_64 is neither installed nor installable.
// Next step: install the package qemu-system-x86.
var ErrNoQemu = errors.New("qemu-system-x86_64 is not here")

// ErrTimeout: the guest did not end before its deadline; the error holds the
// last lines of its console.
var ErrTimeout = errors.New("the guest did not end in time")

// ErrNoEnd: the emulator ended before the guest's program did (a panic, or not
// enough memory); the error holds the last lines of the console.
var ErrNoEnd = errors.New("the guest stopped before its program ended")

// emulator is the program that boots the kernels.
const emulator = "qemu-system-x86_64"

// tailLines is how much of a console an error shows.
const tailLines = 40

// Guest is one program to run inside a kernel. Binary must be static: the guest
// has no libraries, no shell and no network but loopback.
type Guest struct {
	Binary  string            // path here
	Args    []string          // its arguments, without its own name
	Env     []string          // "KEY=value", beside PATH and HOME
	Files   map[string]string // path in the guest → path here; modes are kept
	Modules []string          // kernel modules to load first, such as "sch_netem"

	CPUs    int           // 2 if zero
	Memory  int           // MiB, 1024 if zero
	Timeout time.Duration // 4 minutes if zero, from power-on
}

// Run boots k with g and returns what the program printed and its exit code
// (128 + the signal's number if one ended it). The error is ErrNoQemu,
// ErrTimeout, ErrNoEnd, or says which part of the guest could not be made.
func Run(ctx context.Context, k Kernel, g Guest) (Output, int, error) {
	if _, err := exec.LookPath(emulator); err != nil {
		return Output{}, 0, ErrNoQemu
	}
	dir, err := os.MkdirTemp("", "velo-kernel-")
	if err != nil {
		return Output{}, 0, fmt.Errorf("making the guest's folder: %w", err)
	}
	defer os.RemoveAll(dir)
	initrd := filepath.Join(dir, "initrd")
	if err := pack(ctx, initrd, k, g); err != nil {
		return Output{}, 0, err
	}
	if g.Timeout == 0 {
		g.Timeout = 4 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	return boot(ctx, k, g, initrd)
}

// pack writes the initramfs: our init, the plan that it reads, the program, the
// modules and the extra files.
func pack(ctx context.Context, path string, k Kernel, g Guest) error {
	initBin, err := Build(ctx, filepath.Dir(path), "github.com/velo-agent/velo-agent/tests/kernels/init")
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating the initramfs: %w", err)
	}
	defer f.Close()
	w := newCpio(f)
	w.addFile("init", initBin)
	w.addFile("bin/guest", g.Binary)
	for in, here := range g.Files {
		w.addFile(strings.TrimPrefix(in, "/"), here)
	}
	plan := Plan{Args: append([]string{"/bin/guest"}, g.Args...), Env: g.Env}
	mods, err := k.resolve(ctx, g.Modules)
	if err != nil {
		return err
	}
	for _, m := range mods {
		in := "lib/modules/" + m.name + ".ko"
		w.add(in, 0o644, m.image)
		plan.Modules = append(plan.Modules, "/"+in)
	}
	b, err := json.Marshal(plan)
	if err != nil {
		return fmt.Errorf("encoding the guest's plan: %w", err)
	}
	w.add(strings.TrimPrefix(PlanPath, "/"), 0o644, b)
	if err := w.close(); err != nil {
		return fmt.Errorf("writing the initramfs: %w", err)
	}
	return f.Close()
}

// Build compiles the Go package pkg into dir as a static x86-64 program and
// returns its path. It must be called from inside this module.
func Build(ctx context.Context, dir, pkg string) (string, error) {
	out := filepath.Join(dir, filepath.Base(pkg)+".bin")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	msg, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err() // otherwise only "signal: killed"
	}
	if err != nil {
		return "", fmt.Errorf("building %s: %w: %s", pkg, err, bytes.TrimSpace(msg))
	}
	return out, nil
}

// boot starts the emulator and reads its console until the program has ended,
// the emulator has, or ctx is done.
func boot(ctx context.Context, k Kernel, g Guest, initrd string) (Output, int, error) {
	cpus, mem := g.CPUs, g.Memory
	if cpus == 0 {
		cpus = 2
	}
	if mem == 0 {
		mem = 1024
	}
	start := time.Now()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, emulator, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", strconv.Itoa(cpus), "-m", strconv.Itoa(mem),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", k.Image, "-initrd", initrd,
		"-append", "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off random.trust_cpu=on")
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, 5*time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Output{}, 0, fmt.Errorf("opening the console: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return Output{}, 0, fmt.Errorf("starting %s: %w", emulator, err)
	}
	c := newConsole(start)
	readErr := c.read(out)
	if c.ended {
		// The answer is complete; a power-off that hangs must not cost it.
		timer := time.AfterFunc(10*time.Second, stop)
		_, _ = io.Copy(io.Discard, out)
		timer.Stop()
	}
	waitErr := cmd.Wait()
	if code, ok := c.result(); ok {
		return c.out, code, nil
	}
	switch {
	case c.err != nil:
		err = c.err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%s after %v: %w; its console ended:\n%s", k.Release, g.Timeout, ErrTimeout, c.tail())
	case ctx.Err() != nil:
		err = fmt.Errorf("running %s: %w", k.Release, ctx.Err())
	default:
		err = fmt.Errorf("%s: %w (emulator: %v, console: %v, said: %s); its console ended:\n%s", k.Release, ErrNoEnd, waitErr, readErr, bytes.TrimSpace(stderr.Bytes()), c.tail())
	}
	return c.out, 0, err
}
