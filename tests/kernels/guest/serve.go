// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// serveEnv makes the program the server of the injections.
const serveEnv = "VELO_KERNELS_SERVE"

// serve listens once for each injection, writes the ports as a JSON list and
// serves until stdin ends. Every listener has a thread and blocking sockets of its
// own, so that a delay is where the code says it is.
func serve(stdin io.Reader, stdout io.Writer) error {
	var ports []int
	failed := make(chan error, len(injections))
	for i := range injections {
		j := &injections[i]
		fd, port, err := listen(j)
		if err != nil {
			return fmt.Errorf("listening for %s: %w", j.name, err)
		}
		ports = append(ports, port)
		go func() {
			runtime.LockOSThread()
			for n := 0; ; n++ {
				if err := j.exchange(fd, n%2 == 1); err != nil {
					failed <- fmt.Errorf("serving %s: %w", j.name, err)
					return
				}
			}
		}()
	}
	if err := json.NewEncoder(stdout).Encode(ports); err != nil {
		return err
	}
	go func() {
		_, err := io.Copy(io.Discard, stdin)
		failed <- err
	}()
	return <-failed
}

func listen(j *injection) (fd, port int, err error) {
	family, protocol, at := unix.AF_INET, unix.IPPROTO_TCP, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if j.ipv6 {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
	}
	if j.mptcp {
		protocol = unix.IPPROTO_MPTCP
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
	if j.mptcp && (errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ENOPROTOOPT)) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP) // as Go does
	}
	if err != nil {
		return 0, 0, err
	}
	// Pacing of bbr would show as send_queue. Where cubic is missing there is no bbr either.
	_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return 0, 0, err
	}
	if j.closed > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bufferBytes); err != nil {
			return 0, 0, err
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		return 0, 0, err
	}
	if err := unix.Listen(fd, 16); err != nil {
		return 0, 0, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, 0, err
	}
	if a, ok := name.(*unix.SockaddrInet6); ok {
		return fd, a.Port, nil
	}
	return fd, name.(*unix.SockaddrInet4).Port, nil
}

// exchange serves one connection and tells its client, as the last bytes, how
// long it was delayed and when the delay ended, on its own clock.
func (j *injection) exchange(listener int, disturbed bool) error {
	var injected, ended time.Duration
	timed := func(f func()) {
		begun := monotonic()
		f()
		ended = monotonic()
		injected += ended - begun
	}
	delay := func(d time.Duration) {
		if disturbed && d > 0 {
			timed(func() { sleep(d) })
		}
	}
	if err := readable(listener); err != nil {
		return err
	}
	delay(j.accept)
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("accepting: %w", err)
	}
	defer unix.Close(fd)
	buf := make([]byte, messageBytes)
	if j.warm() {
		if err := read(fd, buf); err != nil {
			return err
		}
		if err := write(fd, buf); err != nil {
			return err
		}
	}
	if err := readable(fd); err != nil {
		return err
	}
	delay(j.read)
	if err := read(fd, buf); err != nil {
		return err
	}
	delay(j.engine)
	if err := write(fd, buf); err != nil {
		return err
	}
	delay(j.gap)
	if j.closed > 0 {
		buf = make([]byte, closedBytes)
		timed(func() { err = write(fd, buf) })
	} else {
		err = write(fd, buf)
	}
	if err != nil {
		return err
	}
	tail := binary.BigEndian.AppendUint64(nil, uint64(injected))
	if err := write(fd, binary.BigEndian.AppendUint64(tail, uint64(ended))); err != nil {
		return err
	}
	return readable(fd) // the client's end: all has left by then
}

func readable(fd int) error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// read takes a whole request: it came in one packet.
func read(fd int, b []byte) error {
	n, err := unix.Read(fd, b)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, b)
	}
	if err == nil && n != len(b) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("reading a request: %w", err)
	}
	return nil
}

// write is one system call, unless a signal cuts it short.
func write(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		b = b[n:]
	}
	return nil
}

func sleep(d time.Duration) {
	left := unix.NsecToTimespec(d.Nanoseconds())
	for errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) {
	}
}

// monotonic is CLOCK_MONOTONIC, which server and client share.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no kernel without it
	}
	return time.Duration(t.Nano())
}
