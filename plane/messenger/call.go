// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"fmt"
	"strings"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Call sends a unary message and returns its result. Errors: *RemoteError for what the
// handler or the peer answers instead, ErrUnknownPeer, ErrNoHandler, ErrShuttingDown,
// ErrPeerLost when the connection on which it was sent ends, and those of ctx.
//
// Of a handler whose name does not begin with _ the peer must have told in its list.
func (m *Messenger) Call(ctx context.Context, to wire.WorkerID, handler string, body []byte) ([]byte, error) {
	result, err := m.request(ctx, to, wire.Unary, handler, body)
	if err != nil {
		return nil, fmt.Errorf("calling %s of worker %d: %w", handler, uint64(to), err)
	}
	return result, nil
}

// Ack sends a message and waits until its handler is through. Errors are those of Call.
func (m *Messenger) Ack(ctx context.Context, to wire.WorkerID, handler string, body []byte) error {
	if _, err := m.request(ctx, to, wire.AckNack, handler, body); err != nil {
		return fmt.Errorf("calling %s of worker %d: %w", handler, uint64(to), err)
	}
	return nil
}

// Fire sends a message that nobody answers. It returns when the message is queued on the
// connection, and waits for that while the connection's queue is full.
func (m *Messenger) Fire(ctx context.Context, to wire.WorkerID, handler string, body []byte) error {
	p, err := m.find(ctx, to)
	if err == nil {
		var l *line
		if l, err = p.connect(ctx); err == nil {
			err = l.send(ctx, wire.FireAndForget, wire.NewResponseID(m.worker, 0, 0), handler, body)
		}
	}
	if err != nil {
		return fmt.Errorf("sending %s to worker %d: %w", handler, uint64(to), err)
	}
	return nil
}

func (m *Messenger) request(ctx context.Context, to wire.WorkerID, kind wire.Kind, handler string, body []byte) ([]byte, error) {
	p, err := m.find(ctx, to)
	if err != nil {
		return nil, err
	}
	l, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.greeted(ctx, handler); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(handler, "_") {
		if err := p.offers(ctx, l, handler); err != nil {
			return nil, err
		}
	}
	return l.request(ctx, kind, handler, body)
}

// request sends a message on the line and waits for its answer.
func (l *line) request(ctx context.Context, kind wire.Kind, handler string, body []byte) ([]byte, error) {
	c := &call{line: l, done: make(chan answer, 1)}
	id, err := l.m.calls.begin(c)
	if err != nil {
		return nil, err
	}
	if err := l.send(ctx, kind, id, handler, body); err != nil {
		l.m.calls.take(id, nil)
		return nil, err
	}
	select {
	case a := <-c.done:
		return a.body, a.err
	case <-ctx.Done():
		l.m.calls.take(id, nil)
		return nil, ctx.Err()
	}
}

func (l *line) send(ctx context.Context, kind wire.Kind, id wire.ResponseID, handler string, body []byte) error {
	frame, err := messageFrame(kind, id, handler, body)
	if err != nil {
		return err
	}
	if err := l.conn.Send(ctx, frame); err != nil {
		l.m.m.resolved("send", "error")
		if ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%w: %w", ErrPeerLost, err)
	}
	return nil
}

func messageFrame(kind wire.Kind, id wire.ResponseID, handler string, body []byte) ([]byte, error) {
	const fixed = 22 // of a message header without the name
	header := fixed + len(handler)
	if err := wire.CheckFrame(header, len(body)); err != nil {
		return nil, err
	}
	b := make([]byte, 0, wire.PreambleLen+header+len(body))
	b = wire.AppendPreamble(b, wire.Message, header, len(body))
	b, err := wire.AppendMessageHeader(b, kind, id, handler, nil)
	return append(b, body...), err
}
