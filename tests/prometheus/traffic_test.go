// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// traffic is the clients of the disturbed servers, until ctx ends.
type traffic struct {
	ctx context.Context
	wg  sync.WaitGroup
}

// clients lets n clients do the same over and over. An error ends the connection, not
// the client.
func (x *traffic) clients(n int, port uint16, do func(ctx context.Context, c *net.TCPConn) error) {
	for range n {
		x.wg.Go(func() {
			for x.ctx.Err() == nil {
				if c, err := x.dial(port); err == nil {
					stop := context.AfterFunc(x.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
					_ = do(x.ctx, c)
					stop()
					c.Close()
				}
				x.pause(50 * time.Millisecond)
			}
		})
	}
}

func (x *traffic) pause(d time.Duration) { pause(x.ctx, d) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (x *traffic) dial(port uint16) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: 3 * time.Second}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(x.ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

const request = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n"

// chat makes exchanges over one connection, with a rest before each.
func chat(exchanges int, rest time.Duration) func(context.Context, *net.TCPConn) error {
	return func(ctx context.Context, c *net.TCPConn) error {
		in := bufio.NewReader(c)
		for range exchanges {
			pause(ctx, rest)
			if err := exchange(c, in); err != nil {
				return err
			}
		}
		return nil
	}
}

func exchange(c io.Writer, in *bufio.Reader) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	return finish(in)
}

// finish reads to the answer's end.
func finish(in *bufio.Reader) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "data: [DONE]") {
			return err
		}
	}
}

// stall asks and reads nothing for a while, then all. Beyond the server's two seconds it gives up.
func stall(rest time.Duration) func(context.Context, *net.TCPConn) error {
	return func(ctx context.Context, c *net.TCPConn) error {
		if err := c.SetReadBuffer(4096); err != nil {
			return err
		}
		if _, err := io.WriteString(c, request); err != nil {
			return err
		}
		pause(ctx, rest)
		return finish(bufio.NewReader(c))
	}
}

// hangUp resets the connection in the midst of the answer.
func hangUp(_ context.Context, c *net.TCPConn) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return err
	}
	return c.SetLinger(0)
}

// ask sends a request and waits for the end of the connection.
func ask(_ context.Context, c *net.TCPConn) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	return err
}

// idle keeps the connection open.
func idle(ctx context.Context, _ *net.TCPConn) error {
	pause(ctx, 2*time.Second)
	return nil
}

// random is where a filter of sockets finds a random number (linux/filter.h).
const random = 1<<32 - 0x1000 + 56 // SKF_AD_OFF + SKF_AD_RANDOM

// lossy chats over a socket whose filter drops one packet in five: the server sends it
// again, as over a bad link.
func lossy(ctx context.Context, c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: 1 << 32 / 5, Jf: 1},
		{Code: unix.BPF_RET, K: 1 << 18}, // let it pass
		{Code: unix.BPF_RET, K: 0},
	}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	if err := errors.Join(cerr, err); err != nil {
		return err
	}
	return chat(1, 0)(ctx, c)
}

// flood sends datagrams to a socket that nobody reads.
func (x *traffic) flood() error {
	in, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	if err := in.SetReadBuffer(2048); err != nil {
		return err
	}
	out, err := net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
	if err != nil {
		return err
	}
	x.wg.Go(func() {
		defer in.Close()
		defer out.Close()
		for x.ctx.Err() == nil {
			for range 10 {
				_, _ = out.Write(make([]byte, 512))
			}
			x.pause(200 * time.Millisecond)
		}
	})
	return nil
}
