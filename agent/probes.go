// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/velo-agent/velo-agent/diagnosis"
)

// probeRounds is how many exchanges of its own the probes verb makes, so that
// each program has run and its cost can be told.
const probeRounds = 500

// ProbeSheet says of each signal which rung this node gives, and what it cost.
type ProbeSheet struct {
	Node     diagnosis.Node          `json:"node"`
	Signals  []diagnosis.Coverage    `json:"signals"`
	Programs []diagnosis.ProgramCost `json:"programs,omitempty"`
	MapBytes uint64                  `json:"kernel_map_bytes,omitempty"`
	Lost     map[string]uint64       `json:"lost,omitempty"`
}

// Probes climbs every ladder, sends a little traffic of its own over loopback, and
// says what held and what it cost. An error that wraps ErrNoSignal comes with a
// sheet.
func Probes(ctx context.Context, log *slog.Logger) (*ProbeSheet, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the traffic of one's own: %w", err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	s, err := Open(ctx, Options{Watch: Watch{Ports: []uint16{port}}, ExactAccept: true, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	off := s.sampleStats()
	echoErr := echo(l, probeRounds)
	off()
	if echoErr != nil {
		return nil, fmt.Errorf("sending traffic of one's own: %w", echoErr)
	}
	m, err := s.Measure()
	if err != nil {
		return nil, fmt.Errorf("measuring: %w", err)
	}
	return &ProbeSheet{Node: m.Node, Signals: m.Coverage, Programs: m.Agent.Programs, MapBytes: m.Agent.KernelMapBytes, Lost: m.Agent.Lost}, s.Missing()
}

// echo makes rounds exchanges with l over one connection.
func echo(l net.Listener, rounds int) error {
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for range rounds {
			line, err := r.ReadSlice('\n')
			if err == nil {
				_, err = c.Write(line)
			}
			if err != nil {
				served <- err
				return
			}
		}
		served <- nil
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	r := bufio.NewReader(c)
	for range rounds {
		if _, err := c.Write([]byte("one exchange\n")); err != nil {
			return errors.Join(err, <-served)
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			return errors.Join(err, <-served)
		}
	}
	return <-served
}
