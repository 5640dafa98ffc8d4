// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/plane/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe is a link that hands batches straight to another mux.
type pipe struct {
	from wire.WorkerID
	to   *Mux
	src  Source
	down func(error)
	kick chan struct{}
	stop chan struct{}
	wg   sync.WaitGroup

	pass   func(payload []byte) [][]byte // what arrives in place of a batch; nil: itself
	broken atomic.Bool
	writes atomic.Int64
	hold   sync.Mutex // held: nothing is written
}

func (p *pipe) Kick() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *pipe) Close() {
	close(p.stop)
	p.wg.Wait()
}

func (p *pipe) run() {
	for {
		select {
		case <-p.stop:
			return
		case <-p.kick:
		}
		for {
			p.hold.Lock()
			frame := p.src.Take()
			p.hold.Unlock()
			if frame == nil {
				break
			}
			if p.broken.Load() {
				p.down(ErrPeerLost)
				break
			}
			p.writes.Add(1)
			pre, err := wire.ParsePreamble(frame)
			if err != nil || len(frame) != wire.PreambleLen+pre.Header+pre.Payload {
				panic("no frame")
			}
			header, err := wire.ParseMessageHeader(frame[wire.PreambleLen:][:pre.Header])
			if err != nil || header.ID.Worker() != p.from || string(header.Handler) != wire.BatchHandler {
				panic("no batch")
			}
			payload := frame[wire.PreambleLen+pre.Header:]
			if p.pass == nil {
				p.to.Batch(p.from, payload)
			} else {
				for _, b := range p.pass(payload) {
					p.to.Batch(p.from, b)
				}
			}
			p.src.Wrote(frame)
		}
	}
}

// net joins muxes by pipes.
type net struct {
	mu    sync.Mutex
	muxes map[wire.WorkerID]*Mux
	pipes map[[2]wire.WorkerID]*pipe
	pass  map[[2]wire.WorkerID]func([]byte) [][]byte
}

func newNet() *net {
	return &net{muxes: map[wire.WorkerID]*Mux{}, pipes: map[[2]wire.WorkerID]*pipe{}, pass: map[[2]wire.WorkerID]func([]byte) [][]byte{}}
}

func (n *net) mux(t testing.TB, w wire.WorkerID, o Options) *Mux {
	o.Worker = w
	o.Dial = func(to wire.WorkerID, s Source, down func(error)) Link {
		n.mu.Lock()
		defer n.mu.Unlock()
		p := &pipe{from: w, to: n.muxes[to], src: s, down: down, kick: make(chan struct{}, 1), stop: make(chan struct{}), pass: n.pass[[2]wire.WorkerID{w, to}]}
		n.pipes[[2]wire.WorkerID{w, to}] = p
		p.wg.Go(p.run)
		return p
	}
	m := New(o)
	n.mu.Lock()
	n.muxes[w] = m
	n.mu.Unlock()
	t.Cleanup(m.Close)
	return m
}

func (n *net) pipe(from, to wire.WorkerID) *pipe {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pipes[[2]wire.WorkerID{from, to}]
}

const (
	producer = wire.WorkerID(11)
	consumer = wire.WorkerID(22)
)

// pair is a producer and a consumer.
func pair2(t testing.TB, o Options) (*net, *Mux, *Mux) {
	n := newNet()
	a, b := n.mux(t, producer, o), n.mux(t, consumer, o)
	return n, a, b
}
