// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BatchSize is how many round trips lie between two readings of the clock.
const BatchSize = 50

const messageSize = 100 // bytes each way

// Quiet is the environment of a process whose thread blocks in raw system calls:
// Go's scheduler must neither need nor disturb it.
var Quiet = []string{"GOGC=off", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=4"}

// Echo is the server's side of the ping-pong: one thread that blocks in read.
type Echo struct{}

// Where says where the thread is to run and, for the client, whom to call.
type Where struct {
	CPU  int
	Addr string
}

// Listen starts the server and answers with its port.
func (e *Echo) Listen(w Where, port *int) error {
	fd, err := socket()
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("binding: %w", err)
	}
	if err := unix.Listen(fd, 16); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("asking for the port: %w", err)
	}
	*port = sa.(*unix.SockaddrInet4).Port
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := Pin(w.CPU); err != nil {
			failed <- err
			return
		}
		failed <- nil
		for {
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			if err != nil {
				return
			}
			if tune(c) == nil {
				echo(c)
			}
			unix.Close(c)
		}
	}()
	return <-failed
}

func echo(fd int) {
	buf := make([]byte, messageSize)
	for readFull(fd, buf) == nil && writeAll(fd, buf) == nil {
	}
}

// PingPong is the client's side.
type PingPong struct {
	work    chan time.Duration
	results chan []float64
	failed  chan error
}

// Connect starts the client's thread.
func (p *PingPong) Connect(w Where, _ *Nothing) error {
	addr, err := net.ResolveTCPAddr("tcp4", w.Addr)
	if err != nil {
		return err
	}
	fd, err := socket()
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}); err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	p.work, p.results, p.failed = make(chan time.Duration), make(chan []float64), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := Pin(w.CPU); err != nil {
			p.failed <- err
			return
		}
		p.failed <- nil
		for d := range p.work {
			batches, err := pingPong(fd, d)
			if err != nil {
				p.failed <- err
				return
			}
			p.results <- batches
		}
	}()
	return <-p.failed
}

// Play plays for a time and answers with the time per round trip of each batch, in ns.
func (p *PingPong) Play(d time.Duration, batches *[]float64) error {
	p.work <- d
	select {
	case *batches = <-p.results:
		return nil
	case err := <-p.failed:
		return fmt.Errorf("playing: %w", err)
	}
}

func pingPong(fd int, d time.Duration) ([]float64, error) {
	buf := make([]byte, messageSize)
	for i := range buf {
		buf[i] = 'a' + byte(i%26)
	}
	batches := make([]float64, 0, 1<<16)
	begun := time.Now()
	for last := begun; last.Sub(begun) < d; {
		for range BatchSize {
			if err := writeAll(fd, buf); err != nil {
				return nil, err
			}
			if err := readFull(fd, buf); err != nil {
				return nil, err
			}
		}
		now := time.Now()
		batches = append(batches, float64(now.Sub(last).Nanoseconds())/BatchSize)
		last = now
	}
	return batches, nil
}

// socket opens a TCP socket that takes cubic, whose packets are not paced.
func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening a socket: %w", err)
	}
	return fd, tune(fd)
}

func tune(fd int) error {
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic"); err != nil {
		return fmt.Errorf("setting cubic: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("setting TCP_NODELAY: %w", err)
	}
	return nil
}

// writeAll and readFull bypass Go's scheduler: it would add some 100 ns to a call
// and now and then a switch of threads.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return errno
		default:
			b = b[n:]
		}
	}
	return nil
}

func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return errno
		case n == 0:
			return io.EOF
		default:
			b = b[n:]
		}
	}
	return nil
}
