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
// ErrRefused: it does not want one, or drains. ErrDraining: this node drains. An anchor of
// this node needs no round trip.
func (n *Node) Attach(ctx context.Context, h wire.Handle) (s *Sender, err error) {
	if h.Hi == n.Worker() {
		if err = n.refuses(); err == nil {
			s, err = n.attachLocal(h)
		}
		n.metrics.openLocal(err)
	} else {
		s, err = n.attachRemote(ctx, h)
	}
	if err != nil {
		return nil, fmt.Errorf("attaching to %s: %w", h, err)
	}
	return s, nil
}

// attachRemote begins a stream to an anchor of another node.
func (n *Node) attachRemote(ctx context.Context, h wire.Handle) (*Sender, error) {
	s, err := n.newSender(h)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	err = n.askAttach(ctx, s, h)
	took := time.Since(begun)
	scheme := "unknown"
	if err == nil {
		scheme = s.key
	}
	n.metrics.attachRTT.WithLabelValues(outcome(err), scheme).Observe(took.Seconds())
	n.metrics.open(scheme, took, err)
	if err != nil {
		n.senders.remove(s.id)
		return nil, err
	}
	return &s.Sender, nil
}

// Open begins a stream with a ticket: the first record may leave at once. ErrDraining:
// this node begins no stream any more.
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
	s, err := n.open(h, t, v)
	if err != nil {
		return nil, fmt.Errorf("opening a stream to %s: %w", h, err)
	}
	return s, nil
}

func (n *Node) open(h wire.Handle, t *wire.Ticket, v wire.Version) (*Sender, error) {
	if h.Hi == n.Worker() {
		if err := n.refuses(); err != nil {
			return nil, err
		}
		return n.openLocal(h, t.RoutingSessionID)
	}
	s, err := n.newSender(h)
	if err != nil {
		return nil, err
	}
	err = n.openSlot(s, h, v, &wire.AttachAnswer{
		HeartbeatIntervalMS: t.HeartbeatIntervalMS, RoutingSessionID: t.RoutingSessionID, InitialCredit: t.InitialCredit,
	})
	if err != nil {
		n.senders.remove(s.id)
		return nil, err
	}
	return &s.Sender, nil
}

// newSender makes the sender of a stream to another node.
func (n *Node) newSender(h wire.Handle) (*remote, error) {
	s := &remote{Sender: Sender{n: n, id: n.senders.next(), to: h.Hi}}
	n.senders.add(s.id, &s.Sender)
	err := n.refuses() // asked after it was counted, so that Drain misses none
	if err == nil && n.senders.size.Load() > int64(n.opts.MaxSenders) {
		err = fmt.Errorf("%w senders: %d", ErrTooMany, n.opts.MaxSenders)
	}
	if err != nil {
		n.senders.remove(s.id)
		return nil, err
	}
	return s, nil
}

// openSlot opens a slot on the terms of an answer or ticket.
func (n *Node) openSlot(s *remote, h wire.Handle, v wire.Version, a *wire.AttachAnswer) error {
	p, err := n.mux.Peer(h.Hi, v)
	if err != nil {
		return err
	}
	terms := mux.Terms{
		Anchor: h.Lo, Session: a.RoutingSessionID, Credit: a.InitialCredit, Version: v,
		Beat: mux.Ticks(time.Duration(a.HeartbeatIntervalMS) * time.Millisecond),
	}
	if err := p.Open(&s.slot, terms, (*told)(&s.Sender)); err != nil {
		return err
	}
	s.carry(&s.slot, v.Key())
	return nil
}

func (n *Node) askAttach(ctx context.Context, s *remote, h wire.Handle) error {
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
	if errors.Is(err, messenger.ErrShuttingDown) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
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

func (n *Node) useAnswer(ctx context.Context, s *remote, h wire.Handle, a *wire.AttachAnswer) error {
	v, ok := wire.VersionOf(a.TransportKey)
	switch {
	case ok && a.InitialCredit == 0:
		return fmt.Errorf("%w: it offers the mux without credit", ErrRefused)
	case ok:
		return n.openSlot(s, h, v, a)
	case a.TransportKey == wire.KeyTCPStream:
		return n.dialStream(ctx, &s.Sender, h, a)
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
				n.metrics.operation(operation, key, time.Since(begun), err)
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
	simple(wire.HandlerCancel, "cancel", func(a *Anchor) { a.leave(ErrCancelled) })
	simple(wire.HandlerMPSCCancel, "cancel", func(a *Anchor) { a.leave(ErrCancelled) })
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
	case a.mpsc():
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
		if a.stopped {
			a.n.stopSource(s)
		}
		return answer, nil
	case a.state == prebound && !muxed:
		a.n.released(a.origin)
		a.state, a.origin = free, nil
		a.await()
		return refuse("anchor %s was pre-bound on %s, which this sender does not support", h, wire.KeyV2)
	case a.state == prebound: // the attach adopts what waits for the ticket
		a.origin.cancel, a.state = r.CancelHandle, attached
		answer.RoutingSessionID = a.origin.session
		return answer, nil
	case a.state == attached && a.origin.claimed && a.origin.cancel == (wire.Handle{}):
		return refuse("anchor %s is already streaming through a pre-bound slot", h)
	case a.state == attached:
		return refuse("anchor %s already attached", h)
	}
	a.state = attached
	if muxed {
		answer.RoutingSessionID = a.newBind(r.CancelHandle)
	} else {
		answer.RoutingSessionID = a.n.streams.expect(a, 0)
		a.origin = &origin{source: source{cancel: r.CancelHandle}, session: answer.RoutingSessionID}
	}
	a.n.deadlines.set(a, a.n.opts.AcceptWindow)
	if a.stopped {
		a.n.stopSource(&a.origin.source)
	}
	return answer, nil
}

// dropSender forgets a sender of an MPSC anchor without a word to the consumer.
func (a *Anchor) dropSender(id uint64) {
	a.mu.Lock()
	s := a.forget(id)
	if s != nil {
		a.await()
	}
	a.mu.Unlock()
	if s != nil {
		s.cancel = wire.Handle{} // it is the one who said so
		a.n.endSource(s, ErrCancelled)
	}
}

// inject gives the consumer a terminal that no sender sent.
func (a *Anchor) inject(terminal []byte) {
	a.mu.Lock()
	s := a.sender()
	ok := a.state != gone && a.state != late && !a.mpsc()
	a.mu.Unlock()
	if !ok {
		return
	}
	switch {
	case s.bind != nil:
		a.n.mux.Cancel(s.bind)
	case s.local != nil && s.cancel == (wire.Handle{}): // on this node
		s.local.End(ErrCancelled)
	}
	_ = a.n.mux.NewLocal(&a.inbox, nil, mux.Hooks{}).Finish(terminal) // closed meanwhile: nobody is to know
}

// abort undoes an attach whose producer could not begin.
func (a *Anchor) abort(cancel wire.Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.origin
	if a.state != attached || o.cancel != cancel || o.claimed || !a.n.released(o) {
		return
	}
	a.state, a.origin = free, nil
	a.await()
}

// renew gives what still waits its full time again.
func (a *Anchor) renew(session *uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.mpsc():
	case session == nil && a.state == free:
		a.n.deadlines.set(a, a.opts.Unattached)
	case session != nil && (a.state == prebound || a.state == attached) && *session == a.origin.session && !a.origin.claimed:
		a.n.deadlines.set(a, a.n.opts.AcceptWindow)
	}
}
