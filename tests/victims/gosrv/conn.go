// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/victims"
)

// A listener lets each connection wait in the accept queue as long as it is told to.
type listener struct {
	net.Listener
	s   *server
	dup *os.File // a net.Listener offers no wait for readiness, its duplicate does
	raw syscall.RawConn
}

func newListener(inner net.Listener, s *server) (*listener, error) {
	dup, err := inner.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	raw, err := dup.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &listener{inner, s, dup, raw}, nil
}

func (l *listener) Accept() (net.Conn, error) {
	if err := l.raw.Read(func(fd uintptr) bool { return readable(fd)&unix.POLLIN != 0 }); err != nil {
		return nil, err
	}
	var waited int64
	if d := acceptDelay.Load(); d > 0 {
		waited = sleep(time.Duration(d))
	}
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := inner.(syscall.Conn).SyscallConn()
	if err != nil {
		inner.Close()
		return nil, err
	}
	c := &conn{Conn: inner, s: l.s, raw: raw, acceptWait: waited, accepted: victims.Now()}
	if a, ok := inner.RemoteAddr().(*net.TCPAddr); ok {
		c.port = a.Port
	}
	return c, nil
}

// A conn delays its reads as it is told to and stamps its writes. With net/http a
// second goroutine reads while the first answers, hence the lock.
type conn struct {
	net.Conn
	s        *server
	raw      syscall.RawConn
	port     int
	accepted int64
	watched  chan struct{} // the handoff model: the watcher hands over

	mu         sync.Mutex
	acceptWait int64
	reader     int64 // before the last read
	handoff    int64 // before the first read of the request
	reads      int
	ordinal    int
	early      []victims.Write // before the request is known: interim answers
	entry      *victims.Entry
	sizes      bool
}

// readable returns what poll says of the socket now.
func readable(fd uintptr) int16 {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	if n, err := unix.Poll(p, 0); n <= 0 || err != nil {
		return 0
	}
	return p[0].Revents
}

func (c *conn) waitReadable() (events int16, err error) {
	err = c.raw.Read(func(fd uintptr) bool {
		events = readable(fd)
		return events != 0
	})
	return events, err
}

func (c *conn) Read(b []byte) (int, error) {
	events, handoff, err := c.ready()
	if err != nil {
		return 0, err
	}
	var slept int64
	if d := readerDelay.Load(); d > 0 && events&unix.POLLRDHUP == 0 { // a bare FIN is no request
		slept = c.s.readerSleep(d)
	}
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.reader = slept
		if c.reads == 0 {
			c.handoff = handoff
		}
		c.reads++
	}
	return n, err
}

func (s *server) readerSleep(d int64) int64 {
	if !s.block {
		return sleep(time.Duration(d))
	}
	start := victims.Now()
	for left := unix.NsecToTimespec(d); unix.Nanosleep(&left, &left) == unix.EINTR; {
	}
	return victims.Now() - start
}

// ready waits for data. In the handoff model another goroutine waits and hands
// over; this one, locked to its own thread, is busy for a while and then takes up.
func (c *conn) ready() (events int16, handoff int64, err error) {
	if c.watched == nil {
		events, err = c.waitReadable()
		return events, 0, err
	}
	var handed int64
	go func() {
		events, err = c.waitReadable()
		handed = victims.Now()
		c.watched <- struct{}{}
	}()
	<-c.watched
	now := victims.Now()
	for until := handed + handoffDelay.Load(); now < until; {
		now = victims.Now()
	}
	return events, now - handed, err
}

// lock makes this goroutine the busy one of the handoff model.
func (c *conn) lock() {
	runtime.LockOSThread()
	c.watched = make(chan struct{})
}

// begin starts the entry of a request that has been read whole.
func (c *conn) begin(plan victims.Case, text string) *victims.Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ordinal++
	c.sizes = len(plan.Sizes) > 0
	c.entry = &victims.Entry{
		RemotePort: c.port, Ordinal: c.ordinal, Case: text, Reads: c.reads,
		Accepted: c.accepted, ReadAt: victims.Now(), Writes: c.early,
		Injected: victims.Injected{AcceptWait: c.acceptWait, Reader: c.reader, Handoff: c.handoff},
	}
	c.acceptWait, c.reads, c.early, c.handoff = 0, 0, nil, 0
	return c.entry
}

var lastChunk = []byte("0\r\n\r\n")

// Write stamps one write. The one that ends the answer completes the log's entry.
func (c *conn) Write(b []byte) (int, error) {
	before := victims.Now()
	n, err := c.Conn.Write(b)
	after := victims.Now()
	w := victims.Write{Before: before, After: after, Bytes: n, What: what(b)}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry
	if e == nil {
		c.early = append(c.early, w)
		return n, err
	}
	if c.sizes {
		e.Injected.SendQueue += after - before
	}
	if len(e.Writes) < 64 {
		e.Writes = append(e.Writes, w)
	}
	if bytes.HasSuffix(b, lastChunk) || err != nil {
		c.entry = nil
		c.s.write(e)
	}
	return n, err
}

func (s *server) write(e *victims.Entry) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = s.log.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "writing the log:", err)
	}
}

// what names a write by its bytes.
func what(b []byte) string {
	start := b[:min(len(b), 256)]
	switch {
	case bytes.HasPrefix(b, []byte("HTTP/1.1 1")):
		return "interim"
	case bytes.HasPrefix(b, []byte("HTTP/1.1")) && !bytes.Contains(start, []byte("data:")):
		return "headers"
	case bytes.Contains(start, []byte("[DONE]")):
		return "done"
	case bytes.Contains(start, []byte(`"role"`)):
		return "role"
	case bytes.HasPrefix(b, lastChunk):
		return "end"
	}
	return "content"
}
