// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// Node is one peer of the plane.
type Node struct {
	opts      Options
	messages  *messenger.Messenger
	mux       *mux.Mux
	anchors   table[Anchor]
	senders   table[Sender] // to other nodes
	one, many AnchorOptions // of most anchors of one sender, and of many
	deadlines wheel
	metrics   *metrics
	streams   *streamServer // nil: none

	fires    chan fire
	draining atomic.Bool
	closed   atomic.Bool
	ctx      context.Context // of what goes on until Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// fire is a message that nobody waits for.
type fire struct {
	to      wire.WorkerID
	handler string
	body    any
}

// mostFires bounds messages that wait to be sent; more are dropped, as the network may.
const mostFires = 1 << 16

// New starts a node. Close ends it.
func New(o Options) (*Node, error) {
	o.setDefaults()
	if o.Metrics == nil {
		return start(o)
	}
	r := &registration{Registerer: o.Metrics}
	o.Metrics = r
	n, err := start(o)
	if err != nil {
		r.undo()
	}
	return n, err
}

func start(o Options) (*Node, error) {
	n := &Node{opts: o, deadlines: wheel{begun: time.Now()}, fires: make(chan fire, mostFires)}
	n.many.MPSC = true
	n.one.setDefaults(&n.opts)
	n.many.setDefaults(&n.opts)
	var err error
	if n.metrics, err = newMetrics(o.Metrics, func() float64 { return float64(n.anchors.size.Load()) }); err != nil {
		return nil, err
	}
	messages := messenger.Options{
		Instance: o.Instance, Listen: o.Listen, Transport: o.Transport, Discovery: o.Discovery, Log: o.Log.With("component", "messenger"),
	}
	if o.Metrics != nil {
		if messages.Metrics, err = messenger.NewMetrics(o.Metrics); err != nil {
			return nil, err
		}
		if o.Transport.Metrics == nil {
			if messages.Transport.Metrics, err = transport.NewMetrics(o.Metrics); err != nil {
				return nil, err
			}
		}
	}
	m := o.Mux
	if m.Metrics, err = mux.NewMetrics(o.Metrics); err != nil {
		return nil, err
	}
	if n.messages, err = messenger.New(messages); err != nil {
		return nil, err
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	m.Worker = n.messages.Worker()
	m.Dial = func(to wire.WorkerID, s mux.Source, down func(error)) mux.Link { return n.messages.Link(to, s, down) }
	m.Ping = n.messages.Healthy
	n.mux = mux.New(m)
	n.messages.HandleNow(wire.BatchHandler, n.mux.Batch)
	n.messages.Departed(n.mux.Suspect)
	n.handleControl()
	if !o.NoTCPStream {
		if n.streams, err = n.serveStreams(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	n.wg.Go(func() { n.deadlines.run(n.ctx, n.expired) })
	n.wg.Go(func() { n.sendFires(n.ctx) })
	return n, nil
}

// Worker is the node's id in handles.
func (n *Node) Worker() wire.WorkerID { return n.messages.Worker() }

// PeerInfo is what other nodes Register to reach this one.
func (n *Node) PeerInfo() wire.PeerInfo { return n.messages.PeerInfo() }

// Register makes a peer known; where there is a Discovery that finds it, there is no need.
func (n *Node) Register(p wire.PeerInfo) error { return n.messages.Register(p) }

// Messages is the messaging that the plane uses, for the application's own handlers.
func (n *Node) Messages() *messenger.Messenger { return n.messages }

// Flush writes what is staged for every peer: with a manual flush policy nothing else does.
func (n *Node) Flush() { n.mux.Flush() }

// Live counts the streams over the mux that hold state here, of both directions.
func (n *Node) Live() int { return n.mux.Live() }

// refuses says why no stream begins here any more; nil: they do.
func (n *Node) refuses() error {
	switch {
	case n.closed.Load():
		return ErrClosed
	case n.draining.Load():
		return ErrDraining
	}
	return nil
}

// Drain has no stream begin any more: NewAnchor, Ticket, Attach and Open fail with
// ErrDraining, attaches and messages of other nodes are refused. Streams that run go on, and
// so does what was promised: a ticket that another node has lets its stream begin. An anchor
// without either ends with ErrUnattached at once, also one whose last sender leaves now.
// Drain waits until every anchor of this node and every stream from it has ended, or ctx has.
func (n *Node) Drain(ctx context.Context) error {
	n.draining.Store(true)
	if err := n.messages.Drain(ctx); err != nil { // attaches that it serves may still be granted
		return err
	}
	for _, a := range n.anchors.all() {
		a.mu.Lock()
		a.await()
		a.mu.Unlock()
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n.anchors.size.Load() > 0 || n.senders.size.Load() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d anchors and %d senders to end: %w", n.anchors.size.Load(), n.senders.size.Load(), ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// flushTime is how long Close lets staged records leave.
const flushTime = time.Second

// Close ends every stream: senders and anchors of this node see it at once. What was
// sent before leaves, if it can within a second.
func (n *Node) Close() error {
	if n.closed.Swap(true) {
		return nil
	}
	if n.mux != nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		_ = n.mux.Flushed(ctx) // or not
		cancel()
	}
	for _, s := range n.senders.all() {
		s.onEnd(ErrClosed)
	}
	for _, a := range n.anchors.all() {
		a.leave(ErrClosed)
	}
	n.stop()
	if n.streams != nil {
		n.streams.close()
	}
	if n.mux != nil {
		n.mux.Close()
	}
	n.wg.Wait()
	return n.messages.Close()
}

// fire sends a message that nobody waits for, in order, off the caller's goroutine: a
// consumer that cancels does not wait for its peer.
func (n *Node) fire(to wire.WorkerID, handler string, body any) {
	select {
	case n.fires <- fire{to, handler, body}:
	default:
		n.opts.Log.Warn("a message was dropped: too many wait", "handler", handler)
	}
}

func (n *Node) sendFires(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-n.fires:
			body, err := json.Marshal(f.body)
			if err == nil {
				err = n.messages.Fire(ctx, f.to, f.handler, body)
			}
			if err != nil {
				n.opts.Log.Debug("a message was not sent", "handler", f.handler, "error", err)
			}
		}
	}
}
