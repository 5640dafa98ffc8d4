// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command init is process 1 of a guest of tests/kernels: it mounts what a program
// expects, loads modules, brings loopback up, runs the program of the plan, copies
// its lines to the serial console under marks, and powers the machine off.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/kernels"
)

// mounts are the file systems of the guest, in order. One that this kernel lacks
// is skipped: the program sees for itself what is there.
var mounts = []struct{ fstype, at, options string }{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", ""},
	{"devpts", "/dev/pts", ""},
	{"tmpfs", "/dev/shm", ""},
	{"tmpfs", "/tmp", "mode=1777"},
	{"tmpfs", "/run", ""},
	{"cgroup2", "/sys/fs/cgroup", ""},
	{"bpf", "/sys/fs/bpf", ""},
	{"tracefs", "/sys/kernel/tracing", ""},
	{"securityfs", "/sys/kernel/security", ""},
}

func main() {
	mount()
	var mu sync.Mutex
	say := func(mark, line string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(os.Stdout, mark+line+"\n")
	}
	code, err := run(say)
	if err != nil {
		say(kernels.MarkError, err.Error())
	} else {
		say(kernels.MarkExit, fmt.Sprint(code))
	}
	drain()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {} // process 1 must not return: the kernel would panic
}

func mount() {
	for _, m := range mounts {
		_ = os.MkdirAll(m.at, 0o755)
		_ = unix.Mount(m.fstype, m.at, m.fstype, 0, m.options)
	}
	for link, to := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2"} {
		_ = os.Symlink(to, link)
	}
}

// drain waits until the console has sent what was written to it.
func drain() {
	_ = unix.IoctlSetInt(1, unix.TCSBRK, 1)
	unix.Sync()
}

// run prepares the machine as the plan says and runs its program to the end.
func run(say func(mark, line string)) (int, error) {
	b, err := os.ReadFile(kernels.PlanPath)
	if err != nil {
		return 0, fmt.Errorf("reading the plan: %w", err)
	}
	var plan kernels.Plan
	if err := json.Unmarshal(b, &plan); err != nil {
		return 0, fmt.Errorf("decoding the plan: %w", err)
	}
	for _, m := range plan.Modules {
		if err := load(m); err != nil {
			return 0, fmt.Errorf("loading the module %s: %w", m, err)
		}
	}
	if err := loopback(); err != nil {
		return 0, fmt.Errorf("bringing loopback up: %w", err)
	}
	_ = unix.Sethostname([]byte("guest"))
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 65536, Max: 65536})
	return program(plan, say)
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// program runs the plan's command, passes its lines on, and reaps every orphan
// meanwhile, as process 1 must.
func program(plan kernels.Plan, say func(mark, line string)) (int, error) {
	outR, outW, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(plan.Args[0], plan.Args[1:]...)
	cmd.Env = append([]string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/tmp"}, plan.Env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/tmp", outW, errW
	say(kernels.MarkStart, "")
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting the program: %w", err)
	}
	outW.Close()
	errW.Close()
	var pumps sync.WaitGroup
	pumps.Go(func() { pump(outR, kernels.MarkOut, say) })
	pumps.Go(func() { pump(errR, kernels.MarkErr, say) })
	code, err := reap(cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	done := make(chan struct{})
	go func() { pumps.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Second): // a child of the program still holds the pipe
	}
	return code, nil
}

// reap waits for every child until the one with this pid has ended, and returns
// its exit code, or 128 and the number of the signal that ended it.
func reap(pid int) (int, error) {
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("waiting for the program: %w", err)
		case got == pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case got == pid:
			return ws.ExitStatus(), nil
		}
	}
}

func pump(r io.Reader, mark string, say func(mark, line string)) {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if line != "" {
			say(mark, strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}
