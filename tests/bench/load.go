// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Load is an HTTP client of one thread around epoll: it keeps a number of
// connections busy and does hardly more than to count bytes.
type Load struct {
	epoll   int
	conns   map[int32]*loadConn
	request []byte
	length  int // of one answer, head and all; 0: it never ends
	bytes   atomic.Uint64
	work    chan time.Duration
	done    chan loaded
}

type loadConn struct{ got int }

type loaded struct {
	Answers int
	Took    time.Duration
	err     error
}

// LoadPlan says what to load. With Endless the answers do not end: the client
// reads them all the time.
type LoadPlan struct {
	Addr, Path string
	Conns      int
	CPU        int
	Endless    bool
}

// Open connects; the thread then waits for Run.
func (l *Load) Open(p LoadPlan, _ *Nothing) error {
	addr, err := net.ResolveTCPAddr("tcp4", p.Addr)
	if err != nil {
		return err
	}
	l.request = fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", p.Path)
	l.conns = map[int32]*loadConn{}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("opening epoll: %w", err)
	}
	sa := &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}
	for range p.Conns {
		fd, err := socket()
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, sa); err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		if l.length == 0 && !p.Endless {
			if l.length, err = l.learn(fd); err != nil {
				return fmt.Errorf("learning the answer's length: %w", err)
			}
		}
		if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return fmt.Errorf("adding to epoll: %w", err)
		}
		l.conns[int32(fd)] = &loadConn{}
	}
	l.work, l.done = make(chan time.Duration), make(chan loaded)
	pinned := make(chan error)
	go func() {
		runtime.LockOSThread()
		pinned <- Pin(p.CPU)
		for d := range l.work {
			l.done <- l.run(d)
		}
	}()
	if err := <-pinned; err != nil {
		return err
	}
	if p.Endless {
		go func() { l.work <- 1<<63 - 1 }()
	}
	return nil
}

// learn makes one exchange and returns how long the answer is.
func (l *Load) learn(fd int) (int, error) {
	if err := writeAll(fd, l.request); err != nil {
		return 0, err
	}
	var answer []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil || n == 0 {
			return 0, errors.Join(err, errors.New("the answer breaks off"))
		}
		answer = append(answer, buf[:n]...)
		if n, ok := answerLength(answer); ok && n == len(answer) {
			return n, nil
		}
	}
}

// answerLength returns the length of the answer that b begins, if it shows.
func answerLength(b []byte) (int, bool) {
	head, _, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return 0, false
	}
	if _, rest, ok := bytes.Cut(bytes.ToLower(head), []byte("content-length: ")); ok {
		digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
		n, err := strconv.Atoi(string(digits))
		return len(head) + 4 + n, err == nil
	}
	return len(b), bytes.HasSuffix(b, []byte("\r\n0\r\n\r\n"))
}

// LoadResult is the result of a run.
type LoadResult struct {
	Answers int
	Took    time.Duration
}

// Run keeps all connections busy for d.
func (l *Load) Run(d time.Duration, r *LoadResult) error {
	l.work <- d
	done := <-l.done
	*r = LoadResult{done.Answers, done.Took}
	return done.err
}

// Bytes answers with how much has been read since Open.
func (l *Load) Bytes(_ Nothing, n *uint64) error {
	*n = l.bytes.Load()
	return nil
}

// close ends the thread and the connections of a client that is not endless.
func (l *Load) close() {
	close(l.work)
	for fd := range l.conns {
		unix.Close(int(fd))
	}
	unix.Close(l.epoll)
}

func (l *Load) run(d time.Duration) (r loaded) {
	begun := time.Now()
	for fd := range l.conns {
		if r.err = writeAll(int(fd), l.request); r.err != nil {
			return r
		}
	}
	events := make([]unix.EpollEvent, 128)
	buf := make([]byte, 64<<10)
	for busy := len(l.conns); busy > 0; {
		n, err := unix.EpollWait(l.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			r.err = fmt.Errorf("waiting for answers: %w", err)
			return r
		}
		over := time.Since(begun) > d
		if !over {
			r.Took = time.Since(begun)
		}
		for _, e := range events[:n] {
			complete, err := l.read(e.Fd, buf)
			if err != nil {
				r.err = err
				return r
			}
			if !complete {
				continue
			}
			if over {
				busy--
				continue
			}
			r.Answers++
			if r.err = writeAll(int(e.Fd), l.request); r.err != nil {
				return r
			}
		}
	}
	return r
}

func (l *Load) read(fd int32, buf []byte) (complete bool, err error) {
	n, err := unix.Read(int(fd), buf)
	if err != nil || n == 0 {
		return false, fmt.Errorf("reading an answer: %w", errors.Join(err, errors.New("the server has closed")))
	}
	l.bytes.Add(uint64(n))
	if l.length == 0 {
		return false, nil
	}
	c := l.conns[fd]
	if c.got += n; c.got < l.length {
		return false, nil
	}
	c.got = 0
	return true, nil
}
