// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
)

// exchanged is one exchange of an injection: which connection it was, and how
// long the server says that it was delayed.
type exchanged struct {
	client    netip.AddrPort
	injected  time.Duration
	disturbed bool
}

// server is this program once more, as the server of the injections.
type server struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ports []uint16
}

func startServer(ctx context.Context) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	s := &server{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.ports)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the server's ports: %w", err), s.stop())
	}
	return s, nil
}

func (s *server) stop() error {
	return errors.Join(s.stdin.Close(), s.cmd.Wait())
}

// drive sends every listener samples disturbed exchanges and as many undisturbed
// ones in turn, all listeners at the same time: they sleep most of it.
func (s *server) drive(ctx context.Context, samples int) ([][]exchanged, error) {
	out := make([][]exchanged, len(injections))
	errs := make([]error, len(injections))
	var wg sync.WaitGroup
	for i := range injections {
		wg.Go(func() {
			for n := range 2 * samples {
				x, err := injections[i].request(ctx, s.ports[i], n%2 == 1)
				if err != nil {
					errs[i] = fmt.Errorf("driving %s: %w", injections[i].name, err)
					return
				}
				out[i] = append(out[i], x)
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// settle is what an emulated server needs to go back to waiting for a request, so
// that its arrival wakes it.
const settle = 20 * time.Millisecond

// request makes one exchange on a connection of its own.
func (j *injection) request(ctx context.Context, port uint16, disturbed bool) (exchanged, error) {
	d := net.Dialer{Timeout: 30 * time.Second}
	if j.closed > 0 {
		d.Control = func(_, _ string, c syscall.RawConn) error {
			var err error
			cerr := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytes)
			})
			return errors.Join(cerr, err)
		}
	}
	host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if j.ipv6 {
		host = netip.IPv6Loopback()
	}
	c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(host, port).String())
	if err != nil {
		return exchanged{}, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return exchanged{}, err
	}
	message := make([]byte, messageBytes)
	if j.warm() {
		if _, err := c.Write(message); err != nil {
			return exchanged{}, err
		}
		if _, err := io.ReadFull(c, message); err != nil {
			return exchanged{}, fmt.Errorf("reading the first response: %w", err)
		}
		time.Sleep(settle)
	}
	if _, err := c.Write(message); err != nil {
		return exchanged{}, err
	}
	sent := monotonic()
	if disturbed {
		time.Sleep(j.closed)
	}
	b := make([]byte, j.response())
	if _, err := io.ReadFull(c, b); err != nil {
		return exchanged{}, fmt.Errorf("reading the response: %w", err)
	}
	tail := b[len(b)-tailBytes:]
	x := exchanged{
		client:    c.LocalAddr().(*net.TCPAddr).AddrPort(),
		injected:  time.Duration(binary.BigEndian.Uint64(tail)),
		disturbed: disturbed,
	}
	// The wait of a TTFT begins with the request, which may come some time after
	// the connection where the machine is slow.
	if ended := time.Duration(binary.BigEndian.Uint64(tail[8:])); j.accept > 0 {
		x.injected = min(x.injected, max(0, ended-sent))
	}
	return x, nil
}

// score judges how much of the injected time, beyond what the undisturbed
// exchanges had, was found in the injection's stage, beyond theirs. The note tells
// in which other stages a part of it was.
func score(out *lines, name string, j *injection, rungs map[string]string, xs []exchanged, traces []*attribution.Trace) {
	staged := map[netip.AddrPort]*attribution.Breakdown{}
	for _, t := range traces {
		if t.Kind != j.kind {
			continue
		}
		b := staged[t.Remote]
		if b == nil {
			b = &attribution.Breakdown{}
			staged[t.Remote] = b
		}
		for s, d := range t.Counted.Stages {
			b.Stages[s] += d
		}
	}
	var injected time.Duration
	var found attribution.Breakdown
	samples, missing := 0, 0
	for _, x := range xs {
		sign := time.Duration(-1)
		if x.disturbed {
			sign = 1
			samples++
		}
		injected += sign * x.injected
		b := staged[x.client]
		if b == nil {
			missing++
			continue
		}
		for s, d := range b.Stages {
			found.Stages[s] += sign * d
		}
	}
	var notes []string
	if j.stage == attribution.AcceptWait {
		notes = append(notes, rungs["accepted"])
	}
	if missing > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d exchanges have no trace", missing, len(xs)))
	}
	for s, d := range found.Stages {
		if part := d.Seconds() / injected.Seconds(); attribution.Stage(s) != j.stage && part > 0.03 {
			notes = append(notes, fmt.Sprintf("%.2f in %s", part, attribution.Stage(s)))
		}
	}
	out.add(name, found.Stages[j.stage].Seconds()/injected.Seconds(), "of the injected time", 0.90, samples, strings.Join(notes, ", "))
}
