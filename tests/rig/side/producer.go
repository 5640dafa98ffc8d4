// SPDX-License-Identifier: Apache-2.0

package side

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/tests/rig/carrier"
	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// producer hosts all peers, and hands in either with one goroutine for all streams of a
// peer or with one for each stream.
type producer struct {
	spec    *carrier.Spec
	carried carrier.Producer
	told    chan error    // that a stream was begun, and later that a goroutine has handed in all
	begin   chan struct{} // closed when start is set
	start   time.Time

	mu    sync.Mutex
	peers [][]*stream
}

// stream is one that was begun.
type stream struct {
	number, next uint64
	due          uint64 // the record that is not to be sent yet
	blocked      bool
	sender       carrier.Sender
	try          func([]byte) error // sends, and waits only if there is no other way
}

func newProducer(spec *carrier.Spec, c carrier.Carrier) (_ *producer, err error) {
	p := &producer{
		spec: spec, told: make(chan error, spec.Streams), begin: make(chan struct{}), peers: make([][]*stream, spec.Peers),
	}
	p.carried, err = c.Producer(spec, p.serve)
	return p, err
}

func (p *producer) address() any { return p.carried.Address() }

func (p *producer) carriedBy() any { return p.carried }

func (p *producer) connect(consumer json.RawMessage) error { return p.carried.Connect(consumer) }

// serve sends the first record of a stream, at once, and the others when it is time.
func (p *producer) serve(n int, sender carrier.Sender, err error) {
	s := &stream{number: uint64(n), sender: sender}
	record := make([]byte, p.spec.Size)
	if p.spec.InFlight > 0 {
		if err == nil {
			err = p.run(s, record)
		}
		if err != nil { // the consumer sees that we went
			fmt.Fprintf(os.Stderr, "stream %d: %v\n", n, err)
			os.Exit(1)
		}
		return
	}
	if err == nil {
		err = p.send(s, record)
	}
	if err != nil {
		err = fmt.Errorf("beginning stream %d: %w", n, err)
	}
	if !p.spec.PerStream {
		p.mu.Lock()
		peer := p.spec.Peer(n)
		p.peers[peer] = append(p.peers[peer], s)
		p.mu.Unlock()
	}
	p.told <- err
	if err != nil || !p.spec.PerStream {
		return
	}
	<-p.begin
	p.told <- p.run(s, record)
}

// send sends the next record, made in b.
func (p *producer) send(s *stream, b []byte) error {
	load.Fill(b, s.number, s.next, p.spec.Paced)
	s.next++
	return s.sender.Send(b)
}

func (p *producer) do(cmd string, a *Answer) error {
	switch cmd {
	case "mark":
		return p.all(p.spec.Streams)
	case "done":
		return nil
	case "rest":
		debug.FreeOSMemory()
		return nil
	case "go":
		a.BegunNS, p.start = load.Now(), time.Now()
		close(p.begin)
		if p.spec.PerStream {
			return p.all(p.spec.Streams)
		}
		for _, streams := range p.peers {
			go func() { p.told <- newWalk(p, streams).run() }()
		}
		return p.all(p.spec.Peers)
	}
	return fmt.Errorf("no command of a producer: %q", cmd)
}

// all waits for n goroutines.
func (p *producer) all(n int) error {
	for range n {
		if err := <-p.told; err != nil {
			return err
		}
	}
	return nil
}

// period is the time between two records of a paced stream.
func (p *producer) period() time.Duration {
	return time.Duration(float64(p.spec.Streams) / p.spec.Rate * float64(time.Second))
}

// run hands in one stream.
func (p *producer) run(s *stream, record []byte) error {
	period := p.period()
	due := p.start.Add(period * time.Duration(s.number) / time.Duration(p.spec.Streams))
	for s.next < uint64(p.spec.Records) {
		if p.spec.Paced {
			time.Sleep(time.Until(due))
			due = due.Add(period)
		}
		if err := p.send(s, record); err != nil {
			return fmt.Errorf("stream %d, record %d: %w", s.number, s.next-1, err)
		}
	}
	return s.sender.Close()
}
