// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// attachTimeout bounds an attach whose context has no deadline: velo's has none, and a
// consumer that does not know us never answers.
const attachTimeout = 30 * time.Second

// Attach begins a stream to the anchor with the handle, by a round trip to its node.
// ErrRefused: it does not want one. An anchor of this process needs no round trip.
func (n *Node) Attach(ctx context.Context, h wire.Handle) (*Sender, error) {
	s, err := n.newSender(h)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if h.Hi == n.Worker() {
		err = n.attachLocal(s, h)
	} else {
		err = n.attachRemote(ctx, s, h)
		n.metrics.attachRTT.WithLabelValues(outcome(err), scheme(s.key, err)).Observe(time.Since(begun).Seconds())
	}
	n.metrics.open(scheme(s.key, err), begun, err)
	if err != nil {
		n.senders.remove(s.id)
		return nil, fmt.Errorf("attaching to %s: %w", h, err)
	}
	return s, nil
}

func scheme(key string, err error) string {
	switch {
	case err != nil:
		return "unknown"
	case key == "":
		return local
	}
	return key
}

// Open begins a stream with a ticket: the first record may leave at once.
func (n *Node) Open(h wire.Handle, t *wire.Ticket) (*Sender, error) {
	v, ok := wire.VersionOf(t.TransportKey)
	switch {
	case h.MPSC():
		return nil, fmt.Errorf("%w: an anchor of many senders has none", ErrTicket)
	case !ok:
		return nil, fmt.Errorf("%w: it is for transport %q", ErrTicket, t.TransportKey)
	case t.InitialCredit == 0:
		return nil, fmt.Errorf("%w: it offers no credit", ErrTicket)
	}
	s, err := n.newSender(h)
	if err != nil {
		return nil, err
	}
	if h.Hi == n.Worker() {
		err = n.openLocal(s, h, t.RoutingSessionID)
	} else {
		err = n.openSlot(s, h, v, &wire.AttachAnswer{
			HeartbeatIntervalMS: t.HeartbeatIntervalMS, RoutingSessionID: t.RoutingSessionID, InitialCredit: t.InitialCredit,
		})
	}
	if err != nil {
		n.senders.remove(s.id)
		return nil, fmt.Errorf("opening a stream to %s: %w", h, err)
	}
	return s, nil
}

func (n *Node) newSender(h wire.Handle) (*Sender, error) {
	switch {
	case n.closed.Load():
		return nil, ErrClosed
	case n.senders.size.Load() >= int64(n.opts.MaxSenders):
		return nil, fmt.Errorf("%w senders: %d", ErrTooMany, n.opts.MaxSenders)
	}
	s := &Sender{n: n, id: n.senders.next(), to: h.Hi}
	n.senders.add(s.id, s)
	return s, nil
}

// openSlot opens a slot on the terms of an answer or ticket.
func (n *Node) openSlot(s *Sender, h wire.Handle, v wire.Version, a *wire.AttachAnswer) error {
	p, err := n.mux.Peer(h.Hi, v)
	if err != nil {
		return err
	}
	terms := mux.Terms{
		Anchor: h.Lo, Session: a.RoutingSessionID, Credit: a.InitialCredit, Version: v,
		Beat: mux.Ticks(time.Duration(a.HeartbeatIntervalMS) * time.Millisecond),
	}
	o, err := p.Open(terms, (*told)(s))
	if err != nil {
		return err
	}
	s.carry(o, v.Key())
	return nil
}

func (n *Node) attachRemote(ctx context.Context, s *Sender, h wire.Handle) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attachTimeout)
		defer cancel()
	}
	keys := []string{wire.KeyV1, wire.KeyV2, wire.KeyTCPStream}
	if n.opts.noMux {
		keys = keys[2:]
	}
	cancelHandle := wire.Handle{Hi: n.Worker(), Lo: s.id}
	body, err := json.Marshal(wire.AttachRequest{
		Handle: h, SessionID: s.id, CancelHandle: cancelHandle,
		TransportKeys: keys,
	})
	if err != nil {
		return err
	}
	handler := wire.HandlerAttach
	if h.MPSC() {
		handler = wire.HandlerMPSCAttach
	}
	reply, err := n.messages.Call(ctx, h.Hi, handler, body)
	if err != nil {
		return err
	}
	answer, err := wire.ParseAttachAnswer(reply, h.MPSC())
	if err != nil {
		var refused *wire.AttachError
		if errors.As(err, &refused) {
			return fmt.Errorf("%w: %s", ErrRefused, refused.Reason)
		}
		return err
	}
	if err := n.useAnswer(ctx, s, h, answer); err != nil {
		if h.MPSC() {
			n.fire(h.Hi, wire.HandlerMPSCDetach, wire.DetachSenderRequest{Handle: h, SenderID: answer.SenderID})
		} else {
			n.fire(h.Hi, wire.HandlerAbortAttach, wire.AbortAttachRequest{Handle: h, CancelHandle: cancelHandle})
		}
		return err
	}
	return nil
}

func (n *Node) useAnswer(ctx context.Context, s *Sender, h wire.Handle, a *wire.AttachAnswer) error {
	v, ok := wire.VersionOf(a.TransportKey)
	switch {
	case ok && a.InitialCredit == 0:
		return fmt.Errorf("%w: it offers the mux without credit", ErrRefused)
	case ok:
		return n.openSlot(s, h, v, a)
	case a.TransportKey == wire.KeyTCPStream:
		return n.dialStream(ctx, s, h, a)
	}
	return fmt.Errorf("%w: it wants transport %q, which is unknown", ErrRefused, a.TransportKey)
}

func (n *Node) handleControl() {
	type body = []byte
	handle := func(name, operation string, f func(from wire.WorkerID, b body) ([]byte, string, error)) {
		n.messages.Handle(name, func(_ context.Context, m messenger.Message) ([]byte, error) {
			begun := time.Now()
			reply, key, err := f(m.From, m.Body)
			if operation != "" {
				n.metrics.operation(operation, key, begun, err)
			}
			var refused *wire.AttachError
			if errors.As(err, &refused) { // in an answer of its own, with outcome 0
				return wire.EncodeAttachError(refused.Reason), nil
			}
			return reply, err
		})
	}
	null := []byte("null")
	handle(wire.HandlerAttach, "attach", func(_ wire.WorkerID, b body) ([]byte, string, error) { return n.granted(b, false) })
	handle(wire.HandlerMPSCAttach, "attach", func(_ wire.WorkerID, b body) ([]byte, string, error) { return n.granted(b, true) })
	simple := func(name, operation string, f func(a *Anchor)) {
		handle(name, operation, func(_ wire.WorkerID, b body) ([]byte, string, error) {
			var r wire.HandleRequest
			if err := r.UnmarshalJSON(b); err != nil {
				return nil, local, err
			}
			if a := n.anchor(r.Handle); a != nil {
				f(a)
			}
			return null, local, nil
		})
	}
	simple(wire.HandlerDetach, "detach", func(a *Anchor) { a.inject(wire.FrameDetached) })
	simple(wire.HandlerFinalize, "finalize", func(a *Anchor) { a.inject(wire.FrameFinalized) })
	simple(wire.HandlerCancel, "cancel", func(a *Anchor) { a.leave(true) })
	simple(wire.HandlerMPSCCancel, "cancel", func(a *Anchor) { a.leave(true) })
	handle(wire.HandlerMPSCDetach, "detach", func(_ wire.WorkerID, b body) ([]byte, string, error) {
		var r wire.DetachSenderRequest
		if err := r.UnmarshalJSON(b); err != nil {
			return nil, local, err
		}
		if a := n.anchor(r.Handle); a != nil {
			a.dropSender(r.SenderID)
		}
		return null, local, nil
	})
	handle(wire.HandlerAbortAttach, "", func(_ wire.WorkerID, b body) ([]byte, string, error) {
		var r wire.AbortAttachRequest
		if err := r.UnmarshalJSON(b); err != nil {
			return nil, local, err
		}
		if a := n.anchor(r.Handle); a != nil {
			a.abort(r.CancelHandle)
		}
		return null, local, nil
	})
	handle(wire.HandlerRenew, "", func(_ wire.WorkerID, b body) ([]byte, string, error) {
		list, err := wire.ParseRenewRequest(b)
		for _, r := range list {
			if a := n.anchor(r.Handle); a != nil {
				a.renew(r.Session)
			}
		}
		return null, local, err
	})
	for name, f := range map[string]func(*Sender){
		wire.HandlerStreamStop:   (*Sender).onStop,
		wire.HandlerStreamCancel: (*Sender).cancelled,
	} {
		handle(name, "", func(from wire.WorkerID, b body) ([]byte, string, error) {
			var r wire.CancelRequest
			if err := r.UnmarshalJSON(b); err != nil {
				return nil, local, err
			}
			if s := n.senders.get(r.SenderStreamID); s != nil && s.to == from {
				f(s)
			}
			return null, local, nil
		})
	}
}

// anchor finds the one with the handle, nil where it is none of ours.
func (n *Node) anchor(h wire.Handle) *Anchor {
	if h.Hi != n.Worker() {
		return nil
	}
	return n.anchors.get(h.Lo)
}

// granted answers an attach.
func (n *Node) granted(b []byte, mpsc bool) (reply []byte, key string, err error) {
	const unknown = "unknown"
	var r wire.AttachRequest
	if err := r.UnmarshalJSON(b); err != nil {
		return nil, unknown, err
	}
	refuse := func(format string, args ...any) ([]byte, string, error) {
		return nil, unknown, &wire.AttachError{Reason: fmt.Sprintf(format, args...)}
	}
	h := r.Handle
	switch {
	case h.MPSC() && !mpsc:
		return refuse("anchor %s is mpsc; use %s", h, wire.HandlerMPSCAttach)
	case !h.MPSC() && mpsc:
		return refuse("anchor %s is spsc; use %s", h, wire.HandlerAttach)
	}
	a := n.anchor(h)
	if a == nil {
		return refuse("anchor %s not found", h)
	}
	key, ok := n.choose(r.TransportKeys)
	if !ok {
		return refuse("transport error: no common streaming transport: peer does not support %s", wire.KeyTCPStream)
	}
	answer, err := a.grant(&r, key)
	if err != nil {
		return nil, unknown, err
	}
	return wire.EncodeAttachAnswer(answer, mpsc), answer.TransportKey, nil
}

// choose picks the way that the producer and we both have.
func (n *Node) choose(keys []string) (string, bool) {
	for _, key := range []string{wire.KeyV2, wire.KeyV1} {
		if slices.Contains(keys, key) {
			return key, true
		}
	}
	return wire.KeyTCPStream, n.streams != nil && (len(keys) == 0 || slices.Contains(keys, wire.KeyTCPStream))
}

// grant lets a producer begin a stream over the transport with the key.
func (a *Anchor) grant(r *wire.AttachRequest, key string) (*wire.AttachAnswer, error) {
	refuse := func(format string, args ...any) (*wire.AttachAnswer, error) {
		return nil, &wire.AttachError{Reason: fmt.Sprintf(format, args...)}
	}
	h := a.Handle()
	_, muxed := wire.VersionOf(key)
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := &wire.AttachAnswer{TransportKey: key, HeartbeatIntervalMS: uint64(a.opts.Heartbeat.Milliseconds())}
	if muxed {
		answer.InitialCredit, answer.SlotByteBudget = a.n.mux.Window(), a.n.mux.SlotBytes()
	}
	switch {
	case a.state == gone || a.state == late:
		return refuse("anchor %s not found", h)
	case a.opts.MPSC:
		if a.crowded() {
			return refuse("reached max_senders limit %d", a.opts.MaxSenders)
		}
		s := a.addSource(r.CancelHandle)
		answer.SenderID = s.id
		if muxed {
			answer.RoutingSessionID = secret()
			s.bind = &mux.Bind{Anchor: a.id, Session: answer.RoutingSessionID, Inbox: &a.inbox, Source: s.id}
			a.n.mux.Bind(s.bind)
		} else {
			answer.RoutingSessionID = a.n.streams.expect(a, s.id)
		}
		return answer, nil
	case a.state == prebound && !muxed:
		a.n.mux.Release(a.bind)
		a.state, a.bind = free, nil
		a.n.deadlines.set(a, a.opts.Unattached)
		return refuse("anchor %s was pre-bound on %s, which this sender does not support", h, wire.KeyV2)
	case a.state == prebound: // the attach adopts what waits for the ticket
		a.cancel, a.state = r.CancelHandle, attached
		answer.RoutingSessionID = a.session
		return answer, nil
	case a.state == attached && a.claimed && a.cancel == (wire.Handle{}):
		return refuse("anchor %s is already streaming through a pre-bound slot", h)
	case a.state == attached:
		return refuse("anchor %s already attached", h)
	}
	a.cancel, a.state = r.CancelHandle, attached
	if muxed {
		a.newBind()
	} else {
		a.session, a.claimed = a.n.streams.expect(a, 0), false
	}
	a.n.deadlines.set(a, a.n.opts.AcceptWindow)
	answer.RoutingSessionID = a.session
	if a.stopped {
		a.n.fire(r.CancelHandle.Hi, wire.HandlerStreamStop, wire.CancelRequest{SenderStreamID: r.CancelHandle.Lo})
	}
	return answer, nil
}

// crowded says that an MPSC anchor takes no more senders. The lock is held.
func (a *Anchor) crowded() bool { return a.opts.MaxSenders > 0 && len(a.senders) >= a.opts.MaxSenders }

// addSource counts one more sender of an MPSC anchor. The lock is held.
func (a *Anchor) addSource(cancel wire.Handle) *source {
	a.lastID++
	s := &source{id: a.lastID, cancel: cancel}
	if a.senders == nil {
		a.senders = map[uint64]*source{}
	}
	a.senders[s.id] = s
	a.n.deadlines.clear(a)
	return s
}

// dropSender forgets a sender of an MPSC anchor without a word to the consumer.
func (a *Anchor) dropSender(id uint64) {
	a.mu.Lock()
	s := a.senders[id]
	delete(a.senders, id)
	a.mu.Unlock()
	if s == nil {
		return
	}
	if s.bind != nil {
		a.n.mux.Cancel(s.bind)
	}
	if s.conn != nil {
		s.conn.close()
	}
}

// inject gives the consumer a terminal that no sender sent.
func (a *Anchor) inject(terminal []byte) {
	a.mu.Lock()
	bind := a.bind
	ok := a.state != gone && a.state != late && !a.opts.MPSC
	a.mu.Unlock()
	if !ok {
		return
	}
	if bind != nil {
		a.n.mux.Cancel(bind)
	}
	_ = a.n.mux.NewLocal(&a.inbox, nil, mux.Hooks{}).Finish(terminal) // closed meanwhile: nobody is to know
}

// abort undoes an attach whose producer could not begin.
func (a *Anchor) abort(cancel wire.Handle) {
	a.mu.Lock()
	mine := a.state == attached && a.cancel == cancel && !a.claimed
	if !mine || a.bind != nil && !a.n.mux.Release(a.bind) {
		a.mu.Unlock()
		return
	}
	a.state, a.bind, a.conn, a.cancel = free, nil, nil, wire.Handle{}
	a.mu.Unlock()
	a.n.deadlines.set(a, a.opts.Unattached)
}

// renew gives what still waits its full time again.
func (a *Anchor) renew(session *uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.opts.MPSC:
	case session == nil && a.state == free:
		a.n.deadlines.set(a, a.opts.Unattached)
	case session != nil && *session == a.session && !a.claimed && (a.state == prebound || a.state == attached):
		a.n.deadlines.set(a, a.n.opts.AcceptWindow)
	}
}
