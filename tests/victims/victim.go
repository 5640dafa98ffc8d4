// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kind is the program that plays the victim.
type Kind string

// The victims. GoHTTP is the Go victim on net/http; Go has a loop of its own over
// net.Conn, where every chunk is one write.
const (
	C      Kind = "c"
	Go     Kind = "go"
	GoHTTP Kind = "go-http"
	Python Kind = "python"
	Nginx  Kind = "nginx"
)

// Kinds are all victims.
var Kinds = []Kind{C, Go, GoHTTP, Python, Nginx}

// ErrImpossible is the cause when a victim cannot be disturbed in the asked way.
var ErrImpossible = errors.New("this victim cannot be disturbed so")

// NoPin as Config.CPU leaves the victim on all CPUs.
const NoPin = -1

// A Config says which victim to start and how.
type Config struct {
	Kind    Kind
	CPU     int    // the CPU that the whole process is pinned to, or NoPin
	Network string // tcp4 (default), tcp6, or tcp: one IPv6 socket that takes IPv4 too
	MPTCP   bool   // listen with MPTCP; nginx cannot
	SndBuf  int    // SO_SNDBUF in bytes; 0 leaves the kernel's
	Answer  string // content of each chunk; default "token"
	Handoff bool   // the woken thread hands the socket to another (C and Go)
	// ReaderBlocks makes Go's reader delay block the OS thread instead of parking
	// the goroutine, which may wake up on another thread.
	ReaderBlocks bool
	Backlog      int // listen's argument (C and Python); default 4096
	Stderr       io.Writer
}

// A Victim is a running server under test.
type Victim struct {
	Config Config
	Port   int
	PID    int // the process that accepts (nginx: the worker)

	dir, logPath string
	cmd          *exec.Cmd
	mu           sync.Mutex // one command at a time
	in           io.WriteCloser
	out          *bufio.Reader
	errText      bytes.Buffer

	logLock sync.Mutex
	logRead int64
	entries []Entry
}

// Start builds the victim's program where it is missing and starts it. The error
// says what is missing (a C compiler, uvicorn, nginx). The context bounds the
// start and, when it ends, kills the victim.
func Start(ctx context.Context, cfg Config) (*Victim, error) {
	if cfg.Network == "" {
		cfg.Network = "tcp4"
	}
	if cfg.Answer == "" {
		cfg.Answer = "token"
	}
	dir, err := os.MkdirTemp("", "victim-")
	if err != nil {
		return nil, fmt.Errorf("making the victim's folder: %w", err)
	}
	v := &Victim{Config: cfg, dir: dir, logPath: filepath.Join(dir, "log")}
	if err := v.start(ctx); err != nil {
		v.Stop()
		if text := strings.TrimSpace(v.errText.String()); text != "" {
			err = fmt.Errorf("%w (it said: %s)", err, text)
		}
		return nil, fmt.Errorf("starting the %s victim: %w", cfg.Kind, err)
	}
	return v, nil
}

func (v *Victim) start(ctx context.Context) error {
	if v.Config.Handoff && v.Config.Kind != C && v.Config.Kind != Go {
		return fmt.Errorf("handing over: %w", ErrImpossible)
	}
	if v.Config.MPTCP && v.Config.Kind == Nginx {
		return fmt.Errorf("listening with MPTCP: %w", ErrImpossible)
	}
	command, front, err := v.command(ctx)
	if err != nil {
		return err
	}
	v.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	v.cmd.Stderr = &v.errText
	if v.Config.Stderr != nil {
		v.cmd.Stderr = v.Config.Stderr
	}
	v.cmd.Cancel = func() error { return v.in.Close() } // an orderly end, also for nginx
	v.cmd.WaitDelay = 2 * time.Second
	if v.in, err = v.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	v.out = bufio.NewReader(out)
	if err := v.cmd.Start(); err != nil {
		v.cmd = nil
		return err
	}
	line, err := v.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("waiting for its port: %w", err)
	}
	var ready struct{ Port, PID int }
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("reading its port: %w", err)
	}
	v.Port, v.PID = ready.Port, ready.PID
	if front != nil {
		v.Port, v.PID, err = front.wait(ctx)
	}
	return err
}

// command returns the command line, building what it needs.
func (v *Victim) command(ctx context.Context) ([]string, *front, error) {
	cfg := v.Config
	host := map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1", "tcp": "::"}[cfg.Network]
	if host == "" {
		return nil, nil, fmt.Errorf("no such network: %q", cfg.Network)
	}
	args := []string{"--log", v.logPath, "--answer", cfg.Answer, "--host", host}
	add := func(on bool, words ...string) {
		if on {
			args = append(args, words...)
		}
	}
	add(cfg.CPU >= 0, "--cpu", strconv.Itoa(cfg.CPU))
	add(cfg.SndBuf > 0 && cfg.Kind != Nginx, "--sndbuf", strconv.Itoa(cfg.SndBuf))
	add(cfg.Handoff, "--handoff")
	var program []string
	var f *front
	var err error
	switch cfg.Kind {
	case C:
		program, err = buildC(ctx, "victim", "victim.c", "exchange.c", "plan.c")
		add(cfg.MPTCP, "--mptcp")
		add(cfg.Backlog > 0, "--backlog", strconv.Itoa(cfg.Backlog))
	case Go, GoHTTP:
		program, err = buildGo(ctx)
		add(true, "--network", cfg.Network, fmt.Sprintf("--mptcp=%v", cfg.MPTCP))
		add(cfg.Kind == GoHTTP, "--nethttp")
		add(cfg.ReaderBlocks, "--reader-blocks")
	case Python:
		program, err = python(ctx)
		add(cfg.MPTCP, "--mptcp")
		add(cfg.Backlog > 0, "--backlog", strconv.Itoa(cfg.Backlog))
	case Nginx:
		if program, err = buildGo(ctx); err != nil {
			break
		}
		if f, err = newFront(ctx, v.dir, host, cfg); err != nil {
			break
		}
		// nginx needs its upstream's port and this process starts nginx, so the
		// upstream listens on a Unix socket that the configuration names.
		args = append([]string{"--unix", f.upstream, "--front", f.command()}, args...)
	default:
		err = fmt.Errorf("no such victim: %q", cfg.Kind)
	}
	return append(program, args...), f, err
}

// SetAcceptDelay makes each connection that is accepted from now on wait for d in
// the accept queue after the victim has learned of it. It stays until set to 0.
func (v *Victim) SetAcceptDelay(d time.Duration) error { return v.order("accept", d) }

// SetReaderDelay makes the victim sleep for d before each read of data that it
// knows to be readable (not before the read of a bare FIN). It stays until set to 0.
func (v *Victim) SetReaderDelay(d time.Duration) error { return v.order("reader", d) }

// SetHandoffDelay, with Config.Handoff, keeps the second thread busy for d from
// the hand-over to the moment when it takes the socket up.
func (v *Victim) SetHandoffDelay(d time.Duration) error {
	if !v.Config.Handoff {
		return fmt.Errorf("setting the handoff delay without Config.Handoff: %w", ErrImpossible)
	}
	return v.order("handoff", d)
}

// SetHandoffBusy is SetHandoffDelay with a second thread that spins already
// before the hand-over (C only). It burns its CPU until set to 0.
func (v *Victim) SetHandoffBusy(d time.Duration) error {
	if !v.Config.Handoff || v.Config.Kind != C {
		return fmt.Errorf("keeping the second thread busy: %w", ErrImpossible)
	}
	return v.order("handoff-busy", d)
}

func (v *Victim) order(word string, d time.Duration) error {
	if v.Config.Kind == Nginx {
		return fmt.Errorf("setting the %s delay of nginx, which is not ours: %w", word, ErrImpossible)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := fmt.Fprintf(v.in, "%s %d\n", word, d.Nanoseconds()); err != nil {
		return fmt.Errorf("setting the %s delay: %w", word, err)
	}
	reply, err := v.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("setting the %s delay: %w", word, err)
	}
	if reply = strings.TrimSpace(reply); reply != "ok" {
		return fmt.Errorf("setting the %s delay: the victim said %q", word, reply)
	}
	return nil
}

// Addr returns the address to dial. With Network tcp it is an IPv4 address, so
// that the victim sees a v4-mapped one.
func (v *Victim) Addr() string {
	host := "127.0.0.1"
	if v.Config.Network == "tcp6" {
		host = "::1"
	}
	return net.JoinHostPort(host, strconv.Itoa(v.Port))
}

// RunDelay returns how long all threads of the victim together have waited for a
// CPU so far. It serves where the victim cannot know its own woken thread (Go, nginx).
func (v *Victim) RunDelay() (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", v.PID))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("finding the threads of %d: %w", v.PID, errors.Join(err, os.ErrNotExist))
	}
	var sum int64
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		if fields := strings.Fields(string(b)); len(fields) == 3 {
			ns, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += ns
		}
	}
	return time.Duration(sum), nil
}

// Stop ends the victim and removes its log. It may be called more than once.
func (v *Victim) Stop() error {
	defer os.RemoveAll(v.dir)
	if v.cmd == nil || v.cmd.Process == nil {
		return nil
	}
	v.in.Close() // it ends with its standard input
	kill := time.AfterFunc(3*time.Second, func() { v.cmd.Process.Kill() })
	defer kill.Stop()
	err := v.cmd.Wait()
	v.cmd = nil
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // killed by its context, or the reason is in its stderr
	}
	return err
}
