// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// Messenger is a node's end of all its conversations.
type Messenger struct {
	o      Options
	log    *slog.Logger
	m      *Metrics
	worker wire.WorkerID
	routes []*transport.Transport // by preference

	addresses addresses
	peers     peers
	calls     calls
	claims    claims
	handling  pool // handlers
	pulling   pool // staged payloads
	pulled    budget

	handlers atomic.Pointer[map[string]*handler]
	departed atomic.Pointer[func(wire.WorkerID)]
	setting  sync.Mutex // held while handlers or ended are changed

	draining atomic.Bool
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup // goroutines that dial
	ended    bool           // none is started any more; guarded by setting
	closed   sync.Once
}

// New listens, and serves until Close.
func New(o Options) (*Messenger, error) {
	o = o.withDefaults()
	m := &Messenger{o: o, log: o.Log, m: o.Metrics, worker: o.Instance.Worker()}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.handlers.Store(&map[string]*handler{})
	m.calls.self, m.calls.m = m.worker, m.m
	m.handling = pool{
		run: m.serve, max: o.Handlers, each: max(o.Handlers/4, 1),
		maxWaiting: o.Queue, eachWaiting: max(o.Queue/4, 1), maxWaitingBytes: 64 << 20, laneBytes: 32 << 20,
	}
	// One at a time of a connection: large records of a stream keep their order, and none has
	// to be held for another.
	m.pulling = pool{run: m.pull, max: 64, each: 1, maxWaiting: 1024, eachWaiting: 256, maxWaitingBytes: 1, laneBytes: 1}
	m.pulled.left = 4 * o.Staged
	m.peers.init(m)
	m.serveHellos()
	if err := m.listen(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Messenger) listen() error {
	var networks []string
	for _, l := range m.o.Listen {
		networks = append(networks, l.Network)
		if _, err := l.advertises(); err != nil {
			return err
		}
	}
	if networks == nil {
		networks = []string{"unix", "tcp"} // to dial
	}
	for _, network := range networks {
		if m.route(network) != nil {
			continue
		}
		t, err := transport.New(network, (*hooks)(m), m.o.Transport)
		if err != nil {
			return err
		}
		m.routes = append(m.routes, t)
	}
	for _, l := range m.o.Listen {
		bound, err := m.route(l.Network).Listen(l.Address)
		if err != nil {
			return err
		}
		if err := m.addresses.listens(l, bound.Addr()); err != nil {
			return err
		}
		m.log.Info("listening for peers", "network", l.Network, "address", bound.Addr().String(), "worker", uint64(m.worker))
	}
	return nil
}

// spawn runs f on a goroutine that Close waits for; false: it was closed.
func (m *Messenger) spawn(f func()) bool {
	m.setting.Lock()
	defer m.setting.Unlock()
	if !m.ended {
		m.running.Go(f)
	}
	return !m.ended
}

func (m *Messenger) route(network string) *transport.Transport {
	for _, t := range m.routes {
		if t.Network() == network {
			return t
		}
	}
	return nil
}

// Worker is the id by which peers address this node.
func (m *Messenger) Worker() wire.WorkerID { return m.worker }

// Instance names this run of the node.
func (m *Messenger) Instance() wire.InstanceID { return m.o.Instance }

// PeerInfo is how this node introduces itself: where it listens (Listen.Advertise, or of a
// wildcard address every interface that others may reach), and what AddAddress added.
func (m *Messenger) PeerInfo() wire.PeerInfo {
	return wire.PeerInfo{Instance: m.o.Instance, Address: m.addresses.all()}
}

// AddAddress adds the entry of something else that peers can dial, such as tcp-stream,
// to PeerInfo.
func (m *Messenger) AddAddress(key string, entry []byte) { m.addresses.add(key, entry) }

// Handle serves the messages of that name, up to Options.Handlers of all names at once,
// each on a goroutine. A name serves once: a second handler for it panics.
func (m *Messenger) Handle(name string, h HandlerFunc) {
	m.handle(name, &handler{serve: func(ctx context.Context, j *job) ([]byte, error) {
		return h(ctx, Message{From: j.from, Kind: j.kind, Body: j.body, Headers: j.headers})
	}})
}

// HandleNow has f take messages of that name on the reading goroutine, in the order of
// their connection. payload is a view until f returns, and f must not block. Connections
// are read at the same time. A message whose payload was staged at the peer, or that wants
// an answer, comes later, and on another goroutine, maybe while f runs for the same peer.
func (m *Messenger) HandleNow(name string, f func(from wire.WorkerID, payload []byte)) {
	m.handle(name, &handler{now: f})
}

func (m *Messenger) handle(name string, h *handler) {
	m.setting.Lock()
	defer m.setting.Unlock()
	old := *m.handlers.Load()
	if old[name] != nil {
		panic(fmt.Sprintf("messenger: the handler %q is there already", name))
	}
	h.m = m.m.bind(name)
	handlers := map[string]*handler{name: h}
	for n, h := range old {
		handlers[n] = h
	}
	m.handlers.Store(&handlers)
}

// Departed has f called when a connection that a peer made to us has ended, on the
// goroutine that read it; there is one such f.
func (m *Messenger) Departed(f func(wire.WorkerID)) { m.departed.Store(&f) }

// Drain refuses messages from now on, except those that streams and payloads under way
// need, and waits until no handler runs and every answer is written. The peers' calls
// that are refused fail at once.
func (m *Messenger) Drain(ctx context.Context) error {
	m.draining.Store(true)
	for _, rest := range []<-chan struct{}{m.pulling.rest(), m.handling.rest()} {
		select {
		case <-rest:
		case <-ctx.Done():
			return fmt.Errorf("waiting for running handlers: %w", ctx.Err())
		}
	}
	for _, l := range m.peers.lines() {
		if err := l.conn.Sync(ctx); err != nil && ctx.Err() != nil {
			return fmt.Errorf("waiting until answers are written: %w", err)
		}
	}
	return nil
}

// finishPatience bounds how long peers are waited for that have answers to read.
const finishPatience = time.Second

// finish ends our own connections, and waits until the peers have read what is on them:
// else a peer may see the end of its connection, and give its calls up, before the answers.
func (m *Messenger) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), finishPatience)
	defer cancel()
	lines := m.peers.lines()
	for _, l := range lines {
		if err := l.conn.Finish(ctx); err != nil {
			m.log.Debug("finishing a connection failed", "err", err)
		}
	}
	for _, l := range lines {
		select {
		case <-l.conn.Done():
		case <-ctx.Done():
		}
	}
}

// Close ends all connections (after Drain when their peers have read the answers), fails all calls with ErrPeerLost, and waits for handlers,
// whose contexts end. Nothing of the messenger runs afterwards. No handler may call it.
func (m *Messenger) Close() error {
	var err error
	m.closed.Do(func() {
		if m.draining.Swap(true) {
			m.finish()
		}
		m.cancel()
		m.setting.Lock()
		m.ended = true
		m.setting.Unlock()
		for _, t := range m.routes {
			err = errors.Join(err, t.Close())
		}
		m.running.Wait()
		<-m.pulling.rest()
		<-m.handling.rest()
	})
	return err
}
