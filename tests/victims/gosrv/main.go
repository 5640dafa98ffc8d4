// SPDX-License-Identifier: Apache-2.0

// Command gosrv is the Go server under test. It has two engines: its own loop
// over net.Conn (one conn.Write per chunk of any size) and net/http. It prints
// {"port":N,"pid":N}, takes commands on standard input, one a line, each answered
// by "ok" ("accept NS", "reader NS", "handoff NS"), and ends with its standard
// input.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/victims"
)

// The delays that no header can carry, in ns; they stay until changed.
var acceptDelay, readerDelay, handoffDelay atomic.Int64

func main() {
	network := flag.String("network", "tcp4", "tcp4, tcp6 or tcp (both on one socket)")
	host := flag.String("host", "127.0.0.1", "address to listen on")
	cpu := flag.Int("cpu", -1, "CPU to run on; -1 for all")
	logPath := flag.String("log", "", "file for one JSON line per request")
	mptcp := flag.Bool("mptcp", true, "listen with MPTCP where the kernel has it, as Go does")
	sndbuf := flag.Int("sndbuf", 0, "SO_SNDBUF in bytes; 0 leaves the kernel's")
	answer := flag.String("answer", "token", "content of each chunk")
	nethttp := flag.Bool("nethttp", false, "serve with net/http")
	handoff := flag.Bool("handoff", false, "a goroutine waits for data and hands the connection to one locked to another thread")
	block := flag.Bool("reader-blocks", false, "the reader's delay blocks its thread instead of parking the goroutine")
	unixPath := flag.String("unix", "", "listen on this Unix socket instead (behind a front server; no delays before the request is read)")
	front := flag.String("front", "", "command to run in front of this server, ended with it")
	flag.Parse()
	if err := run(*cpu, *logPath, *front, func(lc *net.ListenConfig) (net.Listener, error) {
		if *unixPath != "" {
			return lc.Listen(context.Background(), "unix", *unixPath)
		}
		lc.SetMultipathTCP(*mptcp)
		lc.Control = prepare(*sndbuf)
		return lc.Listen(context.Background(), *network, net.JoinHostPort(*host, "0"))
	}, &server{answer: *answer, nethttp: *nethttp, handoff: *handoff, block: *block}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type server struct {
	answer                  string
	nethttp, handoff, block bool
	log                     *os.File
}

func run(cpu int, logPath, front string, listen func(*net.ListenConfig) (net.Listener, error), s *server) error {
	if err := pin(cpu); err != nil {
		return fmt.Errorf("pinning: %w", err)
	}
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	s.log = log
	inner, err := listen(&net.ListenConfig{})
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	l, err := newListener(inner, s)
	if err != nil {
		return fmt.Errorf("preparing the listener: %w", err)
	}
	if s.nethttp {
		h := &http.Server{Handler: s, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		}}
		go h.Serve(l)
	} else {
		go s.serve(l)
	}
	port := 0
	if a, ok := inner.Addr().(*net.TCPAddr); ok {
		port = a.Port
	}
	fmt.Printf("{\"port\":%d,\"pid\":%d}\n", port, os.Getpid())
	if front == "" {
		obey()
		return nil
	}
	cmd := exec.Command("/bin/sh", "-c", "exec "+front)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the front server: %w", err)
	}
	obey()
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	return nil
}

// pin starts the program again on one CPU: an affinity set later would not reach
// the threads that the runtime has made already.
func pin(cpu int) error {
	const mark = "GOSRV_PINNED"
	if cpu < 0 || os.Getenv(mark) != "" {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), mark+"=1"))
}

func prepare(sndbuf int) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			if err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic"); err != nil {
				return
			}
			if sndbuf > 0 {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, sndbuf)
			}
		}); e != nil {
			return e
		}
		return err
	}
}

func obey() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		word, value, _ := strings.Cut(in.Text(), " ")
		delay := map[string]*atomic.Int64{"accept": &acceptDelay, "reader": &readerDelay, "handoff": &handoffDelay}[word]
		var ns int64
		if _, err := fmt.Sscan(value, &ns); err != nil || delay == nil {
			fmt.Println("not understood")
			continue
		}
		delay.Store(ns)
		fmt.Println("ok")
	}
}

// sleep parks the goroutine for d and returns the time that passed, in ns.
func sleep(d time.Duration) int64 {
	start := victims.Now()
	time.Sleep(d)
	return victims.Now() - start
}
