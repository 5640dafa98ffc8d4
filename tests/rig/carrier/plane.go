// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// The plane of this project: tickets, credit, heartbeats, terminals and metrics as in
// production. push: one poller serves all streams; recv: a goroutine each.

// planeNode is a node and the metrics of its connections.
type planeNode struct {
	*plane.Node
	connections *prometheus.Registry
}

func newPlaneNode() (n planeNode, err error) {
	n.connections = prometheus.NewRegistry()
	o := plane.Options{ // everything else as it is by default
		Listen: []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}, NoTCPStream: true, Metrics: prometheus.NewRegistry(),
	}
	if o.Transport.Metrics, err = transport.NewMetrics(n.connections); err != nil {
		return n, err
	}
	n.Node, err = plane.New(o)
	return n, err
}

// join makes a peer known and connects to it.
func (n planeNode) join(p wire.PeerInfo) error {
	if err := n.Register(p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.Messages().WaitForHandler(ctx, p.Instance.Worker(), wire.BatchHandler)
}

// writes counts the writes to sockets.
func (n planeNode) writes() (sum int64, err error) {
	families, err := n.connections.Gather()
	for _, f := range families {
		if f.GetName() != "velo_transport_write_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += int64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, err
}

// A request carries handle and ticket.

func appendTicket(b []byte, h wire.Handle, t *wire.Ticket) []byte {
	for _, n := range []uint64{uint64(h.Hi), h.Lo, t.HeartbeatIntervalMS, t.RoutingSessionID, uint64(t.InitialCredit), uint64(t.SlotByteBudget)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, t.TransportKey...)
}

func parseTicket(b []byte) (h wire.Handle, t *wire.Ticket, err error) {
	const words = 6
	if len(b) < 8*words {
		return h, nil, fmt.Errorf("a ticket of %d bytes", len(b))
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return wire.Handle{Hi: wire.WorkerID(n(0)), Lo: n(1)}, &wire.Ticket{
		HeartbeatIntervalMS: n(2), RoutingSessionID: n(3), InitialCredit: uint32(n(4)), SlotByteBudget: uint32(n(5)), TransportKey: string(b[8*words:]),
	}, nil
}

type planePeer struct {
	Requests string        `json:"requests"`
	Info     wire.PeerInfo `json:"info"`
}

type planeConsumer struct {
	asker
	node   planeNode
	sink   *load.Sink
	poller *plane.Poller // nil: a goroutine a stream
	body   []byte        // of a request
	stop   context.CancelFunc
	ctx    context.Context
}

func newPlaneConsumer(s *Spec, sink *load.Sink) (Consumer, error) {
	n, err := newPlaneNode()
	if err != nil {
		return nil, err
	}
	c := &planeConsumer{node: n, sink: sink}
	c.ctx, c.stop = context.WithCancel(context.Background())
	switch s.Interface {
	case "push":
		c.poller = plane.NewPoller(take)
		go c.poller.Run(c.ctx) // until Close
	case "recv":
	default:
		return nil, errors.Join(fmt.Errorf("the plane has no interface %q: push or recv", s.Interface), c.Close())
	}
	return c, nil
}

func (c *planeConsumer) Address() any { return c.node.PeerInfo() }

func (c *planeConsumer) Connect(producer json.RawMessage) error {
	var peers []planePeer
	if err := json.Unmarshal(producer, &peers); err != nil {
		return err
	}
	var requests []string
	for _, p := range peers {
		requests = append(requests, p.Requests)
		if err := c.node.join(p.Info); err != nil {
			return err
		}
	}
	return c.connect(requests)
}

func (c *planeConsumer) Request(stream int) error {
	account := c.sink.Stream(stream)
	a, err := c.node.NewAnchor(plane.AnchorOptions{Value: account})
	if err != nil {
		return err
	}
	ticket, err := a.Ticket(0)
	if err != nil {
		return err
	}
	if c.poller != nil {
		c.poller.Add(a)
	} else {
		go c.read(a, account)
	}
	c.body = appendTicket(c.body[:0], a.Handle(), ticket)
	c.ask(stream, c.body)
	return nil
}

// take is told by the poller.
func take(a *plane.Anchor, e plane.Event) {
	account := a.Value().(*load.Stream)
	switch err := e.Error(); {
	case err == nil:
		account.Take(e.Data)
	case errors.Is(err, io.EOF):
		account.End(nil)
	default:
		account.End(err)
	}
}

func (c *planeConsumer) read(a *plane.Anchor, account *load.Stream) {
	for {
		record, err := a.Recv(c.ctx)
		switch {
		case err == nil:
			account.Take(record)
			continue
		case errors.Is(err, io.EOF):
			err = nil
		}
		account.End(err)
		return
	}
}

func (c *planeConsumer) Writes() (int64, error) { return c.node.writes() }

func (c *planeConsumer) Close() error {
	c.stop()
	return errors.Join(c.asker.Close(), c.node.Close())
}

type planeProducer struct {
	*answerer
	nodes []planeNode
}

func newPlaneProducer(s *Spec, serve Serve) (Producer, error) {
	p := &planeProducer{}
	for range s.Peers {
		n, err := newPlaneNode()
		if err != nil {
			return nil, err
		}
		p.nodes = append(p.nodes, n)
	}
	var err error
	p.answerer, err = newAnswerer(s.Peers, func(peer int, r request) {
		handle, ticket, err := parseTicket(r.Body)
		if err != nil {
			serve(r.Stream, nil, err)
			return
		}
		sender, err := p.nodes[peer].Open(handle, ticket)
		if err != nil {
			serve(r.Stream, nil, err)
			return
		}
		serve(r.Stream, planeSender{sender}, nil)
	})
	return p, err
}

func (p *planeProducer) Address() any {
	peers := make([]planePeer, len(p.nodes))
	for i, n := range p.nodes {
		peers[i] = planePeer{p.Addresses[i], n.PeerInfo()}
	}
	return peers
}

func (p *planeProducer) Connect(consumer json.RawMessage) error {
	var info wire.PeerInfo
	if err := json.Unmarshal(consumer, &info); err != nil {
		return err
	}
	for _, n := range p.nodes {
		if err := n.join(info); err != nil {
			return err
		}
	}
	return nil
}

func (p *planeProducer) Writes() (sum int64, err error) {
	for _, n := range p.nodes {
		w, e := n.writes()
		sum, err = sum+w, errors.Join(err, e)
	}
	return sum, err
}

func (p *planeProducer) Close() error {
	err := p.answerer.Close()
	for _, n := range p.nodes {
		err = errors.Join(err, n.Close())
	}
	return err
}

// Feeder returns a Feeder of the plane.
func (p *planeProducer) Feeder() Feeder { return &planeFeeder{} }

type planeSender struct{ *plane.Sender }

func (s planeSender) Send(record []byte) error { return s.Sender.Send(context.Background(), record) }

func (s planeSender) TrySend(record []byte) error {
	err := s.Sender.TrySend(record)
	if errors.Is(err, plane.ErrWouldBlock) {
		return ErrWouldBlock
	}
	return err
}

func (s planeSender) Close() error { return s.Finalize() }

type planeFeeder struct {
	feeder plane.Feeder
	ready  []*plane.Sender
}

func (f *planeFeeder) Add(s Trier) { f.feeder.Add(s.(planeSender).Sender) }

func (f *planeFeeder) Next(list []Trier, wait bool) ([]Trier, error) {
	f.ready = f.feeder.Ready(f.ready[:0])
	if len(f.ready) == 0 && wait {
		var err error
		if f.ready, err = f.feeder.Next(context.Background(), f.ready); err != nil {
			return list, err
		}
	}
	for _, s := range f.ready {
		list = append(list, planeSender{s})
	}
	return list, nil
}
