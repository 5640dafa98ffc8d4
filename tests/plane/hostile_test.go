// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// elsewhere is an address of this host that the well-behaved do not have.
const elsewhere = "127.0.0.9"

// siege is a node under attack, with streams from and to a well-behaved peer.
type siege struct {
	victim, good *site
	in, out      *crowd // as the victim sees it
	n            int
}

// Bounds of the victim's listener.
const (
	halfOpenConns = 32
	allConns      = 64
	mostPeers     = 64
)

// heapRoom is what an attack may cost the victim beyond its budgets, in bytes.
const heapRoom = 24 << 20

// TestHostile attacks a node whose other streams do not notice.
func TestHostile(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s *siege)
	}{
		{"another's id", othersID},
		{"another's address", othersAddress},
		{"connections without end", connections},
		{"half a frame", halfFrames},
		{"unknown slots without end", unknownSlots},
		{"one slot again and again", oneSlot},
		{"records ahead of their turn", ahead},
		{"handler names without end", handlerNames},
		{"batches that lie", lies},
		{"peers without end", manyPeers},
		{"credit and closes for nothing", foreignControl},
		{"cancels and stops of others' streams", foreignCancels},
		{"guessed handles", guessedHandles},
		{"guessed pairs", guessedPairs},
	} {
		t.Run(c.name, func(t *testing.T) {
			watch(t)
			s := &siege{n: pick(128, 1024)}
			o := plane.Options{
				Mux:       mux.Options{Silence: silence, MaxPeers: mostPeers},
				Transport: transport.Options{HalfOpen: halfOpenConns, Accepted: allConns, Patience: silence},
			}
			s.victim, s.good = pair(t, o, plane.Options{Mux: mux.Options{Silence: silence}})
			s.in = gather(t, s.good, s.victim, 0, s.n, 4)
			s.out = gather(t, s.victim, s.good, 1<<20, s.n, 4)
			s.in.live(t)
			s.out.live(t)
			before := heap()
			c.do(t, s)
			if grown := heap() - before; grown > heapRoom {
				t.Errorf("the heap has grown by %d bytes, at most %d are allowed", grown, heapRoom)
			} else {
				t.Logf("the heap has grown by %d KiB", grown>>10)
			}
			s.in.more(t, s.n)
			s.out.more(t, s.n)
			s.in.complete(t)
			s.out.complete(t)
			quiet(t, s.victim, s.good)
		})
	}
}

// othersID speaks for the well-behaved peer: a batch of a later epoch would end all streams.
func othersID(t *testing.T, s *siege) {
	later := func(a *attacker, from wire.WorkerID) {
		a.epoch = 1 << 60
		a.batch(from, openOf(wire.MakeSlotID(0, 0), 1, 1))
	}
	good := s.good.Worker()
	for name, do := range map[string]func(a *attacker){
		"at once": func(a *attacker) { later(a, good) },
		"after its own": func(a *attacker) {
			a.batch(0)
			later(a, good)
		},
		"as the victim": func(a *attacker) { later(a, s.victim.Worker()) },
		"a stop": func(a *attacker) {
			a.json(good, wire.HandlerStreamStop, wire.CancelRequest{SenderStreamID: 1})
		},
	} {
		a := attack(t, s.victim, elsewhere)
		do(a)
		if !a.shut() {
			t.Errorf("%s: the connection stays open", name)
		}
	}
	rose(t, s.victim, 4, rejections, "reason=route_failed")
}

// othersAddress would have what goes to the well-behaved peer go elsewhere.
func othersAddress(t *testing.T, s *siege) {
	p := newProxy(t, listensAt(t, s.good.PeerInfo())) // it answers, and is not where the peer is
	moved := wire.HelloRequest{PeerInfo: at(s.good.Messages().Instance(), p.address())}
	a := attack(t, s.victim, elsewhere)
	a.json(0, wire.HandlerHello, moved)
	attack(t, s.victim, "127.0.0.1").json(s.good.Worker(), wire.HandlerHello, moved)
	b := attack(t, s.victim, elsewhere)
	b.json(s.good.Worker(), wire.HandlerHello, moved)
	if !b.shut() {
		t.Error("the connection stays open")
	}
	s.in.more(t, s.n)
	info, _ := s.victim.Messages().Peer(s.good.Worker())
	if got := listensAt(t, info); got != listensAt(t, s.good.PeerInfo()) {
		t.Errorf("the peer was moved to %v", got)
	}
}

func connections(t *testing.T, s *siege) {
	files := descriptors(t)
	var open []net.Conn
	for i := range pick(500, 3000) {
		c, err := net.Dial("tcp", listensAt(t, s.victim.PeerInfo()).String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		if i%2 == 0 { // it says something, and then nothing
			a := attacker{t: t, c: c, id: wire.NewInstanceID()}
			a.batch(0)
		}
	}
	eventually(t, func() string { // ours count too
		if n := descriptors(t) - files - len(open); n > allConns {
			return fmt.Sprintf("the victim holds %d connections, at most %d are allowed", n, allConns)
		}
		return ""
	})
	rose(t, s.victim, len(open)/2-allConns, rejections, "reason=route_failed")
	s.in.more(t, s.n)
	s.out.more(t, s.n)
	for _, c := range open {
		c.Close()
	}
}

func halfFrames(t *testing.T, s *siege) {
	var list []*attacker
	for i := range halfOpenConns / 2 {
		a := attack(t, s.victim, elsewhere)
		if i%2 == 0 {
			a.batch(0)
		}
		a.raw(wire.AppendPreamble(nil, wire.Message, 100, wire.MaxFrame-100))
		a.raw(make([]byte, 50*i))
		list = append(list, a)
	}
	s.in.more(t, s.n)
	if grown := s.victim.shows(t, rejections, "reason=decode_error"); grown > 0 {
		t.Logf("%v gave up at once", grown)
	}
	for _, a := range list {
		if !a.shut() {
			t.Error("a connection that waits within a frame stays open")
		}
	}
	rose(t, s.victim, len(list), rejections, "reason=decode_error")
}

func unknownSlots(t *testing.T, s *siege) {
	a := attack(t, s.victim, elsewhere)
	a.json(0, wire.HandlerHello, wire.HelloRequest{PeerInfo: at(a.id, nowhere())})
	live := s.victim.Live()
	const each = 1000
	batches := pick(200, 2000)
	list := make([]wire.Record, each)
	for range batches {
		for i := range list {
			bits := 8 + i%2*8 // of what fits, and of what there is on the wire
			list[i] = openOf(wire.MakeSlotID(rand.Uint32()>>bits, uint8(rand.Uint32())), rand.Uint64(), rand.Uint64())
		}
		a.batch(0, list...)
	}
	eventually(t, func() string {
		if n := s.victim.shows(t, dropped, "reason=unknown_slot"); n < float64(batches*each/2) {
			return fmt.Sprintf("%v opens were refused", n)
		}
		return ""
	})
	if n := s.victim.Live(); n > live {
		t.Errorf("%d slots hold state, %d before", n, live)
	}
	rose(t, s.victim, each, "velo_streaming_mux_control_refused_total")
}

func oneSlot(t *testing.T, s *siege) {
	a := attack(t, s.victim, elsewhere)
	mine, err := s.victim.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := mine.Ticket(0)
	if err != nil {
		t.Fatal(err)
	}
	id := wire.MakeSlotID(1, 1)
	open := openOf(id, mine.Handle().Lo, ticket.RoutingSessionID)
	for range pick(50, 2000) {
		var list []wire.Record
		for g := range 500 {
			list = append(list, open, openOf(wire.MakeSlotID(1, uint8(g)), rand.Uint64(), 1), closeOf(id, wire.UnknownSlot))
		}
		a.batch(0, list...)
	}
	a.batch(0, dataOf(id, 1, []byte("still there")))
	if b, err := mine.Recv(t.Context()); err != nil || string(b) != "still there" {
		t.Errorf("the slot that was opened first says %q, %v", b, err)
	}
	rose(t, s.victim, 1000, dropped, "reason=duplicate")
	rose(t, s.victim, 1000, dropped, "reason=slot_collision")
	mine.Close()
}

// ahead fills what is held for records that never come: of slots that it was offered.
func ahead(t *testing.T, s *siege) {
	const slots, size = 64, 40 << 10
	a := attack(t, s.victim, elsewhere)
	var mine []*plane.Anchor
	big := make([]byte, size)
	for i := range slots {
		m, err := s.victim.NewAnchor(plane.AnchorOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := m.Ticket(0)
		if err != nil {
			t.Fatal(err)
		}
		mine = append(mine, m)
		id := wire.MakeSlotID(uint32(i), 0)
		a.batch(0, openOf(id, m.Handle().Lo, ticket.RoutingSessionID))
		for seq := range uint32(mux.DefaultWindow) { // the budget of the slot is for 26
			a.batch(0, dataOf(id, seq+2, big))
		}
	}
	var most float64
	for _, m := range mine {
		for {
			_, err := m.Recv(t.Context())
			if err == nil {
				t.Error("a record came out of its turn")
				continue
			}
			if word(err) != "dropped" {
				t.Errorf("a stream that misses a record ends with %v", err)
			}
			break
		}
		most = max(most, s.victim.shows(t, "velo_streaming_mux_held_records"))
	}
	if most*size > mux.DefaultPeerBytes {
		t.Errorf("%v records were held, more than the budget of the peer", most)
	}
	rose(t, s.victim, slots/2, overspent)
}

func handlerNames(t *testing.T, s *siege) {
	shown := s.victim.series(t)
	a := attack(t, s.victim, elsewhere)
	long := strings.Repeat("x", 60_000)
	for i := range pick(20_000, 200_000) {
		name := fmt.Sprint("_h", i)
		if i%100 == 0 {
			name += long
		}
		a.message(0, wire.Kind(i%3), name, nil)
	}
	eventually(t, func() string {
		if s.victim.shows(t, "velo_messenger_dispatch_failures_total", "reason=unknown_handler") == 0 {
			return "nothing came"
		}
		return ""
	})
	if n := s.victim.series(t); n > shown+8 {
		t.Errorf("%d series are shown, %d before", n, shown)
	}
}

func lies(t *testing.T, s *siege) {
	a := attack(t, s.victim, elsewhere)
	list := []wire.Record{openOf(wire.MakeSlotID(0, 0), 1, 1), dataOf(wire.MakeSlotID(0, 0), 1, make([]byte, 100)), creditOf(wire.MakeSlotID(0, 0), 1<<31)}
	good := batchOf(wire.BatchHeader{Version: wire.V2, Epoch: 1}, list...)
	sent := 0
	say := func(b []byte) {
		a.message(0, wire.FireAndForget, wire.BatchHandler, b)
		sent++
	}
	for i := range good {
		say(good[:i])
		say(append(good[:len(good):len(good)], make([]byte, i+1)...))
	}
	for _, count := range []uint16{0, 1, 4, 1000, 65535} {
		b := append([]byte(nil), good...)
		binary.BigEndian.PutUint16(b[2:], count)
		say(b)
	}
	for at := range good {
		for _, v := range []byte{0xff, 0x7f, 0x80} {
			b := append([]byte(nil), good...)
			b[at] = v
			a.message(0, wire.FireAndForget, wire.BatchHandler, b)
		}
	}
	eventually(t, func() string {
		if n := s.victim.shows(t, malformed); n < float64(sent) {
			return fmt.Sprintf("%v of %d batches were found malformed", n, sent)
		}
		return ""
	})
}

// manyPeers names a new worker on each connection: that takes nobody's place, and a
// newcomer finds one.
func manyPeers(t *testing.T, s *siege) {
	for range pick(150, 3000) {
		a := attack(t, s.victim, elsewhere)
		a.json(0, wire.HandlerHello, wire.HelloRequest{PeerInfo: at(a.id, nowhere())})
		a.batch(0, openOf(wire.MakeSlotID(0, 0), 1, 1))
		a.close()
	}
	newcomer := start(t, plane.Options{})
	register(t, newcomer, s.victim.PeerInfo())
	c := gather(t, newcomer, s.victim, 1<<30, 8, 2)
	c.live(t)
	c.complete(t)
}

// foreignControl speaks of slots that others have. Slots are a peer's own, so nothing moves.
func foreignControl(t *testing.T, s *siege) {
	a := attack(t, s.victim, elsewhere)
	for session := range uint64(8) {
		for index := range uint32(2 * s.n) {
			id := wire.MakeSlotID(index, uint8(session))
			a.batch(0, creditOf(id, 1000), closeOf(id, wire.UnknownSlot), closeOf(id, wire.ProtocolError),
				closeOf(id, wire.TerminalSent), lifecycleOf(id, session, wire.Cancel), lifecycleOf(id, session, wire.Stop),
				wire.Record{Type: wire.SlotHeartbeat, Slot: id, FrameSeq: 1}, dataOf(id, 1, []byte("forged")),
				wire.Record{Type: wire.Data, Slot: id, FrameSeq: 2, Body: wire.FrameFinalized})
		}
	}
	eventually(t, func() string {
		if n := s.victim.shows(t, dropped, "reason=closed_slot"); n < float64(8*2*s.n) {
			return fmt.Sprintf("%v records were dropped", n)
		}
		return ""
	})
}

// foreignCancels cancels and stops, by message, streams that the victim sends to others.
func foreignCancels(t *testing.T, s *siege) {
	a := attack(t, s.victim, elsewhere)
	for id := range uint64(4 * s.n) {
		a.json(0, wire.HandlerStreamCancel, wire.CancelRequest{SenderStreamID: id})
		a.json(0, wire.HandlerStreamStop, wire.CancelRequest{SenderStreamID: id})
	}
	served(t, s, a)
	for _, m := range s.out.makers.list {
		if m.sender.StopRequested() {
			t.Error("a stream was stopped")
			break
		}
	}
}

// served waits until what the attacker has said was taken note of.
func served(t *testing.T, s *siege, a *attacker) {
	t.Helper()
	seen := make(chan struct{}, 1)
	s.victim.Messages().Handle("_seen", func(context.Context, messenger.Message) ([]byte, error) {
		seen <- struct{}{}
		return nil, nil
	})
	// Handlers run side by side, and not all that was said found room.
	for end := time.Now().Add(patience); ; {
		a.message(0, wire.FireAndForget, "_seen", nil)
		select {
		case <-seen:
			return
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal("nothing is served any more")
		}
	}
}

// guessedHandles acts on anchors that nobody told of.
func guessedHandles(t *testing.T, s *siege) {
	free, err := s.victim.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ticketed, err := s.victim.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := ticketed.Ticket(0)
	if err != nil {
		t.Fatal(err)
	}
	a := attack(t, s.victim, elsewhere)
	for lo := range uint64(2*s.n + 10) {
		h := wire.Handle{Hi: s.victim.Worker(), Lo: lo}
		own := wire.Handle{Hi: a.id.Worker(), Lo: 1}
		a.json(0, wire.HandlerAttach, wire.AttachRequest{Handle: h, SessionID: 1, CancelHandle: own, TransportKeys: []string{wire.KeyV2}})
		for _, handler := range []string{wire.HandlerDetach, wire.HandlerFinalize, wire.HandlerCancel} {
			a.json(0, handler, wire.HandleRequest{Handle: h})
		}
		a.json(0, wire.HandlerAbortAttach, wire.AbortAttachRequest{Handle: h, CancelHandle: own})
	}
	served(t, s, a)
	begin := map[*plane.Anchor]func() (*plane.Sender, error){
		free:     func() (*plane.Sender, error) { return s.good.Attach(t.Context(), free.Handle()) },
		ticketed: func() (*plane.Sender, error) { return s.good.Open(ticketed.Handle(), ticket) },
	}
	for a, f := range begin {
		sender, err := f()
		if err != nil {
			t.Errorf("who was told of an anchor cannot come any more: %v", err)
			continue
		}
		if err := sender.Send(t.Context(), []byte("mine")); err != nil {
			t.Error(err)
		}
		if b, err := a.Recv(t.Context()); string(b) != "mine" {
			t.Errorf("the stream says %q, %v", b, err)
		}
		sender.Finalize()
		a.Recv(t.Context())
	}
	free.Close()
	ticketed.Close()
}

// guessedPairs opens slots for tickets that it was not given.
func guessedPairs(t *testing.T, s *siege) {
	ticketed, err := s.victim.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := ticketed.Ticket(0)
	if err != nil {
		t.Fatal(err)
	}
	a := attack(t, s.victim, elsewhere)
	most := uint64(s.n + 10)
	for anchor := range most {
		var list []wire.Record
		for session := range most {
			id := wire.MakeSlotID(uint32(session), 0)
			list = append(list, openOf(id, anchor, session), dataOf(id, 1, []byte("forged")))
		}
		a.batch(0, list...)
	}
	a.close()
	sender, err := s.good.Open(ticketed.Handle(), ticket)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Send(t.Context(), []byte("mine")); err != nil {
		t.Error(err)
	}
	if b, err := ticketed.Recv(t.Context()); string(b) != "mine" {
		t.Errorf("the stream says %q, %v", b, err)
	}
	sender.Finalize()
	ticketed.Recv(t.Context())
	ticketed.Close()
}
