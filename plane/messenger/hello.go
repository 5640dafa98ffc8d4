// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// greeting is the _hello of a connection that this node dialed.
type greeting struct {
	done chan struct{} // closed when it is answered, with err set
	err  error
}

const greetingPatience = 30 * time.Second

// greet says hello as the first message of a connection, and does not wait.
func (p *peer) greet(l *line, c *transport.Conn) {
	m := p.m
	l.conn = c
	m.m.resolved("handshake", "attempt")
	body, err := json.Marshal(wire.HelloRequest{PeerInfo: wire.PeerInfo{Instance: m.o.Instance, Address: m.addresses.messenger()}})
	var id wire.ResponseID
	if err == nil {
		id, err = m.calls.begin(&call{line: l, then: func(a answer) { p.heard(l, a) }})
	}
	var frame []byte
	if err == nil {
		frame, err = messageFrame(wire.Unary, id, wire.HandlerHello, body)
	}
	if err != nil {
		p.heard(l, answer{err: err})
		return
	}
	// There is room: it is the first.
	if !c.TrySend(frame) && m.calls.take(id, nil) != nil {
		p.heard(l, answer{err: ErrPeerLost})
	}
}

// heard takes the answer to a greeting.
func (p *peer) heard(l *line, a answer) {
	err := a.err
	if err == nil {
		err = p.learn(a.body)
	}
	if err != nil {
		p.m.m.resolved("handshake", "error")
		l.greeting.err = fmt.Errorf("saying hello: %w", err)
	} else {
		p.m.m.resolved("handshake", "success")
	}
	close(l.greeting.done)
}

// greeted waits until the peer knows us, so that its answer finds us.
func (l *line) greeted(ctx context.Context, handler string) error {
	g := &l.greeting
	select {
	case <-g.done:
	default:
		timeout := time.NewTimer(greetingPatience)
		defer timeout.Stop()
		select {
		case <-g.done:
		case <-timeout.C:
			return fmt.Errorf("saying hello: no answer within %v", greetingPatience)
		case <-ctx.Done():
			return fmt.Errorf("saying hello: %w", ctx.Err())
		}
	}
	// A peer that drains takes no hello, but it may know us, and what streams need it takes.
	if errors.Is(g.err, ErrShuttingDown) && strings.HasPrefix(handler, "_") {
		return nil
	}
	return g.err
}

// What a peer's list of handlers may hold.
const (
	maxHandlers    = 4096
	maxHandlerName = 1024 // bytes
)

// learn takes a peer's list of handlers.
func (p *peer) learn(body []byte) error {
	var list wire.HandlersAnswer
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	if len(list.Handlers) > maxHandlers {
		return fmt.Errorf("reading the peer's handlers: %w: %d, at most %d", ErrTooMany, len(list.Handlers), maxHandlers)
	}
	handlers := make(map[string]struct{}, len(list.Handlers))
	for _, name := range list.Handlers {
		if len(name) > maxHandlerName {
			return fmt.Errorf("reading the peer's handlers: %w bytes in a name: %d, at most %d", ErrTooMany, len(name), maxHandlerName)
		}
		handlers[name] = struct{}{}
	}
	p.mu.Lock()
	p.handlers = handlers
	p.mu.Unlock()
	return nil
}

func (p *peer) has(handler string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.handlers[handler]
	return ok
}

// offers asks the peer once more if its list does not have the handler.
func (p *peer) offers(ctx context.Context, l *line, handler string) error {
	if p.has(handler) {
		return nil
	}
	body, err := l.request(ctx, wire.Unary, wire.HandlerListHandlers, []byte("null"))
	if err == nil {
		err = p.learn(body)
	}
	if err != nil {
		return fmt.Errorf("asking for the peer's handlers: %w", err)
	}
	if !p.has(handler) {
		return fmt.Errorf("%w: %q; register it there, or wait for it with WaitForHandler", ErrNoHandler, handler)
	}
	return nil
}

// handlerPause is between two looks for a handler that is not there yet.
const handlerPause = 100 * time.Millisecond

// WaitForHandler waits until the peer's list has the handler. It returns at once if the
// list that is known has it, and fails at once if the peer cannot be asked.
func (m *Messenger) WaitForHandler(ctx context.Context, to wire.WorkerID, name string) error {
	for {
		err := m.lookForHandler(ctx, to, name)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrNoHandler) {
			return fmt.Errorf("waiting for the handler %s of worker %d: %w", name, uint64(to), err)
		}
		select {
		case <-time.After(handlerPause):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the handler %s of worker %d: %w", name, uint64(to), ctx.Err())
		}
	}
}

func (m *Messenger) lookForHandler(ctx context.Context, to wire.WorkerID, name string) error {
	p, err := m.find(ctx, to)
	if err != nil {
		return err
	}
	if p.has(name) {
		return nil
	}
	l, err := p.connect(ctx)
	if err != nil {
		return err
	}
	if err := l.greeted(ctx, ""); err != nil {
		return err
	}
	return p.offers(ctx, l, name)
}

// serveHellos serves what every node does.
func (m *Messenger) serveHellos() {
	m.handle(wire.HandlerHello, &handler{serve: func(ctx context.Context, j *job) ([]byte, error) {
		var r wire.HelloRequest
		if err := json.Unmarshal(j.body, &r); err != nil {
			return nil, err
		}
		who := r.PeerInfo.Instance
		if who.Worker() != j.from {
			return nil, fmt.Errorf("%w: the hello of worker %d introduces %s", ErrTaken, uint64(j.from), who)
		}
		_, proved := j.conn.MaySpeakFor(j.from)
		// A peer that has no address can be answered on its own connection only.
		if err := m.enroll(ctx, r.PeerInfo, byHello, proved); err != nil && !errors.Is(err, ErrNoRoute) {
			return nil, err
		}
		return m.ownHandlers()
	}})
	m.handle(wire.HandlerListHandlers, &handler{serve: func(context.Context, *job) ([]byte, error) { return m.ownHandlers() }})
}

func (m *Messenger) ownHandlers() ([]byte, error) {
	return json.Marshal(wire.HandlersAnswer{Handlers: slices.Sorted(maps.Keys(*m.handlers.Load()))})
}
