// SPDX-License-Identifier: Apache-2.0

package side

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"

	"github.com/velo-agent/velo-agent/tests/rig/carrier"
	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// The floor moves as many bytes as the case has, in 64 KiB writes and reads over a
// connection a peer, and looks at none of them.

const floorBlock = 64 << 10

// floorBytes is how many bytes each peer sends.
func floorBytes(s *carrier.Spec) int { return s.Streams * (s.Records - 1) * s.Size / s.Peers }

type floorConsumer struct {
	spec  *carrier.Spec
	l     net.Listener
	conns []net.Conn
}

func newFloorConsumer(spec *carrier.Spec) (*floorConsumer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return &floorConsumer{spec: spec, l: l}, nil
}

func (f *floorConsumer) address() any { return f.l.Addr().String() }

func (f *floorConsumer) carriedBy() any { return nil }

func (f *floorConsumer) connect(json.RawMessage) error {
	for range f.spec.Peers {
		c, err := f.l.Accept()
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		f.conns = append(f.conns, c)
	}
	return nil
}

func (f *floorConsumer) do(cmd string, a *Answer) error {
	if cmd != "wait" {
		return nil
	}
	err := each(f.conns, func(c net.Conn) error {
		b := make([]byte, floorBlock)
		for left := floorBytes(f.spec); left > 0; {
			n, err := c.Read(b)
			if err != nil {
				return fmt.Errorf("reading with %d bytes to come: %w", left, err)
			}
			left -= n
		}
		return nil
	})
	a.EndedNS = load.Now()
	return err
}

type floorProducer struct {
	spec  *carrier.Spec
	conns []net.Conn
}

func (f *floorProducer) address() any { return nil }

func (f *floorProducer) carriedBy() any { return nil }

func (f *floorProducer) connect(consumer json.RawMessage) error {
	var to string
	if err := json.Unmarshal(consumer, &to); err != nil {
		return err
	}
	for range f.spec.Peers {
		c, err := net.Dial("tcp", to)
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		f.conns = append(f.conns, c)
	}
	return nil
}

func (f *floorProducer) do(cmd string, a *Answer) error {
	if cmd != "go" {
		return nil
	}
	a.BegunNS = load.Now()
	return each(f.conns, func(c net.Conn) error {
		b := make([]byte, floorBlock)
		for left := floorBytes(f.spec); left > 0; {
			n, err := c.Write(b[:min(left, len(b))])
			if err != nil {
				return fmt.Errorf("writing: %w", err)
			}
			left -= n
		}
		return nil
	})
}

// each runs f for each connection, all at once, and returns the first error.
func each(conns []net.Conn, f func(net.Conn) error) (err error) {
	var wg sync.WaitGroup
	var once sync.Once
	for _, c := range conns {
		wg.Go(func() {
			if e := f(c); e != nil {
				once.Do(func() { err = e })
			}
		})
	}
	wg.Wait()
	return err
}
