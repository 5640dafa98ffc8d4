// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plan is one listener of a server under test, and how it is disturbed.
type plan struct {
	Name        string
	Backlog     int           // 0: somaxconn
	AcceptDelay time.Duration // before each accept
	ReadDelay   time.Duration // of each request, once it is readable
	Think       time.Duration // before the first token
	Gap         time.Duration // before each further one
	Records     int
	Bytes       int  // of a record; 0: a short one
	Nagle       bool // two writes for each record, without TCP_NODELAY
	Slam        bool // close with the request unread
	Thread      bool // a thread for each connection, which ends with it
}

// machine is the process that the plans are served by.
type machine struct {
	Plans []plan
	CPU   int    // -1: any
	Files uint64 // the most descriptors; 0: as many as the test's
	Spin  int    // threads that do nothing but compute

	Threads []string // names of threads that do nothing
}

const machineVar = "VELO_AGENT_TEST_MACHINE"

// startServer starts a server and returns its ports by name. prepare may change the
// command, settle the process, which waits for its go-ahead. Both may be nil.
func startServer(t *testing.T, m machine, prepare func(*exec.Cmd), settle func(pid int)) map[string]uint16 {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role+"=serve", machineVar+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(cmd)
	}
	startOn(t, m.CPU, cmd)
	if settle != nil {
		settle(cmd.Process.Pid)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	ports := map[string]uint16{}
	if err := json.NewDecoder(out).Decode(&ports); err != nil {
		t.Fatalf("starting the server of %v: %v", m.Plans[0].Name, err)
	}
	return ports
}

// serve is the child: it answers until its standard input ends.
func serve() error {
	var m machine
	if err := json.Unmarshal([]byte(os.Getenv(machineVar)), &m); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return nil // whoever started it went away
	}
	ports := map[string]uint16{}
	for _, p := range m.Plans {
		l, err := p.listen()
		if err != nil {
			return err
		}
		ports[p.Name] = uint16(l.Addr().(*net.TCPAddr).Port)
		go p.serve(l)
	}
	if m.Files > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: m.Files, Max: m.Files}); err != nil {
			return err
		}
	}
	for range m.Spin {
		go func() {
			for {
				_ = time.Now()
			}
		}()
	}
	for _, name := range m.Threads {
		go func() {
			runtime.LockOSThread()
			_ = os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", unix.Gettid()), []byte(name), 0)
			select {}
		}()
	}
	if err := json.NewEncoder(os.Stdout).Encode(ports); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	return nil
}

// startOn starts a command all of whose threads stay on one CPU; -1: on any.
func startOn(t *testing.T, cpu int, cmd *exec.Cmd) {
	t.Helper()
	if cpu >= 0 { // a child inherits it from the thread that starts it
		var all, one unix.CPUSet
		one.Set(cpu)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := errors.Join(unix.SchedGetaffinity(0, &all), unix.SchedSetaffinity(0, &one)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	}
	start(t, cmd)
}

// listen listens without MPTCP, and with the backlog of the plan.
func (p *plan) listen() (*net.TCPListener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil || p.Backlog == 0 {
		return l.(*net.TCPListener), err
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), p.Backlog) })
	return l.(*net.TCPListener), errors.Join(cerr, err)
}

func (p *plan) serve(l *net.TCPListener) {
	for {
		time.Sleep(p.AcceptDelay)
		c, err := l.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(20 * time.Millisecond) // no descriptor: the queue stays
			continue
		}
		go p.answer(c)
	}
}

// answer answers the requests of one connection.
func (p *plan) answer(c *net.TCPConn) {
	defer c.Close()
	if p.Thread {
		runtime.LockOSThread() // and never unlocked: it ends with the goroutine
		for begun := time.Now(); time.Since(begun) < 5*time.Millisecond; {
		}
	}
	_ = c.SetNoDelay(!p.Nagle)
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	in := bufio.NewReader(&late{c, raw, p.ReadDelay})
	for {
		if p.Slam {
			_ = readable(raw)
			return // with the request unread: the kernel resets the connection
		}
		for line := ""; line != "\r\n"; {
			if line, err = in.ReadString('\n'); err != nil {
				return
			}
		}
		_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		if p.stream(c) != nil {
			_ = c.SetLinger(0)
			return
		}
	}
}

// stream writes one answer.
func (p *plan) stream(w io.Writer) error {
	if _, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"); err != nil {
		return err
	}
	record := "data: {\"choices\":[{\"delta\":{\"content\":\"token" + strings.Repeat("x", p.Bytes) + "\"}}]}\n\n"
	writes := 1
	if p.Nagle {
		writes = 2
	}
	time.Sleep(p.Think)
	for i := range p.Records {
		if i > 0 {
			time.Sleep(p.Gap)
		}
		for range writes {
			if _, err := io.WriteString(w, record); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(w, "data: [DONE]\n\n")
	return err
}

// late reads what is readable only after a while.
type late struct {
	net.Conn
	raw   syscall.RawConn
	delay time.Duration
}

func (l *late) Read(b []byte) (int, error) {
	if l.delay > 0 {
		if err := readable(l.raw); err != nil {
			return 0, err
		}
		time.Sleep(l.delay)
	}
	return l.Conn.Read(b)
}

// readable waits until there is something to be read, and leaves it there.
func readable(raw syscall.RawConn) error {
	return raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		return err != nil || n > 0
	})
}

// hog is the child that takes its CPU from everybody else for twenty milliseconds of thirty, until its standard input ends.
func hog() error {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("asking for real-time scheduling: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for {
		for begun := time.Now(); time.Since(begun) < 20*time.Millisecond; {
		}
		select {
		case <-ended:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}
