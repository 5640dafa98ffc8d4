// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// hooks is the Messenger as its transports see it.
type hooks Messenger

func (h *hooks) Frame(c *transport.Conn, t wire.FrameType, header, payload []byte) {
	m := (*Messenger)(h)
	l, ok := c.Owner.(*line)
	if !ok { // the first frame of an accepted connection
		l = newLine(m, nil)
		l.conn = c
		c.Owner = l
	}
	var err error
	switch t {
	case wire.Message:
		err = m.message(c, l, header, payload)
	case wire.Response:
		err = m.response(c, l, header, payload)
	case wire.Ack:
		err = m.ack(c, l, header, payload)
	case wire.ShuttingDown:
		err = m.refused(c, l, header)
	case wire.Event: // nobody here waits for events
	}
	if err != nil {
		c.Transport().Reject(transport.DecodeError)
		m.log.Debug("frame dropped", "from", c.Remote().String(), "type", t.String(), "err", err)
	}
}

func (h *hooks) Closed(c *transport.Conn, err error) {
	m := (*Messenger)(h)
	l, ok := c.Owner.(*line)
	if !ok {
		return // a health check, or one that was refused
	}
	if err != io.EOF {
		m.log.Debug("connection ended", "peer", c.Remote().String(), "dialed", c.Dialed(), "err", err)
	}
	if l.claimed {
		m.claims.drop(l.from)
	}
	if f := m.departed.Load(); f != nil && l.from != 0 {
		(*f)(l.from)
	}
	if l.peer != nil {
		err = fmt.Errorf("%w: %w", ErrPeerLost, err)
		m.calls.lost(l, err)
		l.peer.lost(l, err)
	}
}

// message hands a message to its handler, now or later.
func (m *Messenger) message(c *transport.Conn, l *line, header, payload []byte) error {
	m.m.dequeued.Inc()
	h, err := wire.ParseMessageHeader(header)
	if err != nil {
		m.m.failed("decode", "active_message")
		return err
	}
	from := h.ID.Worker()
	if (from != l.from || from == 0) && !m.speaks(c, l, from) {
		return nil
	}
	if m.draining.Load() && !passesGate(h.Handler) {
		m.refuse(c, header)
		return nil
	}
	hd := (*m.handlers.Load())[string(h.Handler)]
	if hd == nil && h.Kind == wire.FireAndForget {
		m.m.failed("dispatch", "unknown_handler")
		return nil
	}
	if hd != nil && hd.now != nil && h.Headers == nil && h.Kind == wire.FireAndForget {
		hd.now(from, payload)
		return nil
	}
	j := &job{conn: c, line: l, from: from, kind: h.Kind, id: h.ID, handler: hd, headers: bytes.Clone(h.Headers)}
	if hd == nil {
		j.name = string(h.Handler) // for the answer
	}
	if staged, ok := wire.LookupHeader(h.Headers, wire.HeaderRendezvous); ok && hd != nil {
		j.staged = staged
		if !m.pulling.submit(&l.pulling, j) {
			m.overloaded(j)
		}
		return nil
	}
	j.body = bytes.Clone(payload)
	if !m.handling.submit(&l.handling, j) {
		m.overloaded(j)
	}
	return nil
}

// overloaded answers a message for which there is no room, on the connection that it
// came on: no goroutine is left that could dial.
func (m *Messenger) overloaded(j *job) {
	j.conn.Transport().Reject(transport.RouteFailed)
	m.m.failed("dispatch", "ordered_lane_shed")
	if j.kind == wire.FireAndForget {
		return
	}
	frame, err := answerFrame(j, nil, fmt.Errorf("%w messages wait for a handler; try again later", ErrTooMany))
	if err == nil {
		j.conn.TrySend(frame)
	}
}

func (m *Messenger) response(c *transport.Conn, l *line, header, payload []byte) error {
	h, err := wire.ParseResponseHeader(header)
	if err != nil {
		return err
	}
	m.complete(c, l, h.ID, h.OK, payload)
	return nil
}

// ack completes an AckNack message, and a Unary one that has failed or whose handler
// gives no result.
func (m *Messenger) ack(c *transport.Conn, l *line, header, payload []byte) error {
	h, err := wire.ParseAckHeader(header)
	if err != nil {
		return err
	}
	if !h.Event {
		m.complete(c, l, h.ID, h.OK, payload)
	}
	return nil
}

func (m *Messenger) complete(c *transport.Conn, l *line, id wire.ResponseID, ok bool, payload []byte) {
	call := m.calls.take(id, func(k *call) bool { return answersFor(c, l, k) })
	switch {
	case call == nil: // its caller has left, or it was not asked of this peer
	case ok:
		call.complete(answer{body: bytes.Clone(payload)})
	default:
		call.complete(answer{err: &RemoteError{Text: strings.ToValidUTF8(string(payload), "?")}})
	}
}

// answersFor says whether an answer on this connection may be the peer's: a connection
// that speaks for another one, or may not speak for it, cannot answer.
func answersFor(c *transport.Conn, l *line, k *call) bool {
	to := k.line.peer.worker
	if l.from != 0 {
		return l.from == to
	}
	may, _ := c.MaySpeakFor(to)
	return may
}

// refused fails the call whose message the peer copied back because it drains.
func (m *Messenger) refused(c *transport.Conn, l *line, header []byte) error {
	h, err := wire.ParseMessageHeader(header)
	if err != nil {
		return err
	}
	if call := m.calls.take(h.ID, func(k *call) bool { return answersFor(c, l, k) }); call != nil {
		call.complete(answer{err: ErrShuttingDown})
	}
	return nil
}
