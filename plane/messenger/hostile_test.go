// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

func hello(t *testing.T, p wire.PeerInfo) string {
	t.Helper()
	b, err := json.Marshal(wire.HelloRequest{PeerInfo: p})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestHelloDoesNotMove: a _hello cannot move a peer that answers where it is known.
func TestHelloDoesNotMove(t *testing.T) {
	victim := newScript(t)
	moved := newScript(t).info
	moved.Instance = victim.id
	for _, c := range []struct {
		name string
		know func(m *Messenger)
	}{
		{"told by the application", func(m *Messenger) {
			if err := m.Register(victim.info); err != nil {
				t.Fatal(err)
			}
		}},
		{"told by its hello", func(m *Messenger) {
			conn := victim.dial(t, m)
			victim.say(t, conn, victim.id.Worker(), wire.Unary, wire.HandlerHello, nil, hello(t, victim.info))
			victim.next(t, wire.Response, "")
			conn.Close()
			get(t, victim.closed)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newNode(t, "tcp", Options{})
			c.know(m)
			thief := newScript(t)
			thief.say(t, thief.dial(t, m), victim.id.Worker(), wire.Unary, wire.HandlerHello, nil, hello(t, moved))
			// The answer goes to the victim: that is where the worker is.
			if h := victim.next(t, wire.Response, ""); !strings.Contains(string(h.body), ErrTaken.Error()) {
				t.Errorf("the hello was answered with %s", h.body)
			}
			if info, _ := m.Peer(victim.id.Worker()); string(info.Address) != string(victim.info.Address) {
				t.Error("the address was overwritten")
			}
		})
	}
	t.Run("a dead address", func(t *testing.T) {
		m := newNode(t, "tcp", Options{})
		gone := newScript(t)
		if err := m.Register(gone.info); err != nil {
			t.Fatal(err)
		}
		gone.t.Close()
		again := newScript(t)
		again.id, again.info.Instance = gone.id, gone.id
		again.say(t, again.dial(t, m), gone.id.Worker(), wire.Unary, wire.HandlerHello, nil, hello(t, again.info))
		again.next(t, wire.Response, "")
		if info, _ := m.Peer(gone.id.Worker()); string(info.Address) != string(again.info.Address) {
			t.Error("the new address was not taken")
		}
	})
	t.Run("somebody else", func(t *testing.T) {
		m, s := newNode(t, "tcp", Options{}), newScript(t)
		s.say(t, s.dial(t, m), s.id.Worker(), wire.Unary, wire.HandlerHello, nil, hello(t, victim.info))
		if h := s.next(t, wire.Response, ""); !strings.Contains(string(h.body), "introduces") {
			t.Errorf("answered with %s", h.body)
		}
		if _, known := m.Peer(victim.id.Worker()); known {
			t.Error("registered")
		}
	})
}

// TestClaims: a connection speaks for one worker, and for none that is connected from
// elsewhere.
func TestClaims(t *testing.T) {
	m := newNode(t, "tcp", Options{Listen: []Listen{listenOn(t, "tcp"), listenOn(t, "unix")}})
	got := make(chan string, 10)
	m.HandleNow("_now", func(from wire.WorkerID, payload []byte) { got <- fmt.Sprint(uint64(from), " ", string(payload)) })
	victim, thief := newScript(t), newScript(t)
	honest := victim.dial(t, m)
	w := victim.id.Worker()
	victim.say(t, honest, w, wire.FireAndForget, "_now", nil, "1")
	if s := get(t, got); s != fmt.Sprint(uint64(w), " 1") {
		t.Fatal(s)
	}
	for _, c := range []struct {
		name string
		dial func() (net.Conn, error)
		from []wire.WorkerID
	}{
		{"from another host", func() (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
			return d.Dial("tcp", honest.Remote().String())
		}, []wire.WorkerID{w}},
		{"over another transport", func() (net.Conn, error) { return net.Dial("unix", m.o.Listen[1].Address) }, []wire.WorkerID{w}},
		{"after another name", func() (net.Conn, error) { return net.Dial("tcp", honest.Remote().String()) }, []wire.WorkerID{thief.id.Worker(), w}},
		{"nobody", func() (net.Conn, error) { return net.Dial("tcp", honest.Remote().String()) }, []wire.WorkerID{0}},
		{"ourselves", func() (net.Conn, error) { return net.Dial("tcp", honest.Remote().String()) }, []wire.WorkerID{m.Worker()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := c.dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for i, from := range c.from {
				f, err := messageFrame(wire.FireAndForget, wire.NewResponseID(from, 0, 0), "_now", []byte("theirs"))
				if err != nil {
					t.Fatal(err)
				}
				conn.Write(f)
				if i < len(c.from)-1 {
					get(t, got)
				}
			}
			conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			var timeout net.Error
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatal("the connection was not closed:", err)
			}
		})
	}
	victim.say(t, honest, w, wire.FireAndForget, "_now", nil, "2")
	if s := get(t, got); s != fmt.Sprint(uint64(w), " 2") {
		t.Fatal(s)
	}
	honest.Close()
	// Once it has gone, it may come from there.
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.Dial("unix", m.o.Listen[1].Address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f, _ := messageFrame(wire.FireAndForget, wire.NewResponseID(w, 0, 0), "_now", []byte("3"))
		c.Write(f)
		select {
		case s := <-got:
			if s != fmt.Sprint(uint64(w), " 3") {
				t.Fatal(s)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("still refused")
		}
	}
}

// TestForgedAnswer: another peer cannot answer a call.
func TestForgedAnswer(t *testing.T) {
	m, asked, thief := newNode(t, "tcp", Options{}), newScript(t), newScript(t)
	if err := m.Register(asked.info); err != nil {
		t.Fatal(err)
	}
	result := make(chan string, 1)
	go func() {
		got, err := m.Call(context.Background(), asked.id.Worker(), "_x", nil)
		result <- fmt.Sprint(string(got), err)
	}()
	h := asked.next(t, wire.Message, wire.HandlerHello)
	asked.answer(t, h, `{"handlers":[]}`)
	h = asked.next(t, wire.Message, "_x")
	forged := h
	forged.conn = thief.dial(t, m)
	thief.say(t, forged.conn, thief.id.Worker(), wire.Unary, wire.HandlerListHandlers, nil, "")
	thief.answer(t, forged, "forged")
	thief.say(t, forged.conn, thief.id.Worker(), wire.Unary, wire.HandlerListHandlers, nil, "")
	thief.next(t, wire.Response, "")
	thief.next(t, wire.Response, "")
	asked.answer(t, h, "true")
	asked.answer(t, h, "twice")
	if got := get(t, result); got != "true<nil>" {
		t.Fatal(got)
	}
}

// TestEndlessHandlers: a list of handlers that is too long is refused.
func TestEndlessHandlers(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       error
	}{
		{"many", `{"handlers":["` + strings.Repeat(`","`, maxHandlers) + `"]}`, ErrTooMany},
		{"long", `{"handlers":["` + strings.Repeat(`x`, maxHandlerName+1) + `"]}`, ErrTooMany},
		{"huge", `{"handlers":["` + strings.Repeat(`x`, 1<<20) + `"]}`, wire.ErrBody},
		{"none", `{}`, wire.ErrBody},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, s := newNode(t, "tcp", Options{}), newScript(t)
			if err := m.Register(s.info); err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			go func() {
				_, err := m.Call(context.Background(), s.id.Worker(), "x", nil)
				failed <- err
			}()
			s.answer(t, s.next(t, wire.Message, wire.HandlerHello), c.list)
			wantErr(t, get(t, failed), c.want)
		})
	}
}

// TestFlood: one connection that sends without end is refused what goes beyond its part,
// and another one is served meanwhile.
func TestFlood(t *testing.T) {
	m := newNode(t, "tcp", Options{Handlers: 8, Queue: 40})
	release := make(chan struct{})
	m.Handle("_slow", func(context.Context, Message) ([]byte, error) { <-release; return nil, nil })
	m.Handle("_echo", echo)
	bad := newScript(t)
	c := bad.dial(t, m)
	const n = 100
	for range n {
		bad.say(t, c, bad.id.Worker(), wire.AckNack, "_slow", nil, "")
	}
	for range n - 2 - 10 { // two run, ten wait
		if h := bad.next(t, wire.Ack, ""); !strings.Contains(string(h.body), ErrTooMany.Error()) {
			t.Fatalf("answered with %q", h.body)
		}
	}
	good := newNode(t, "tcp", Options{})
	register(t, good, m)
	if _, err := good.Call(soon(t), m.Worker(), "_echo", nil); err != nil {
		t.Fatal(err)
	}
	close(release)
	for range 12 {
		if h := bad.next(t, wire.Ack, ""); len(h.body) != 0 {
			t.Fatalf("answered with %q", h.body)
		}
	}
}

// TestPeerBound: hellos without end do not fill the table for others.
func TestPeerBound(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := transport.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	m := newNode(t, "tcp", Options{Peers: 8, Transport: transport.Options{Metrics: metrics}})
	for range 30 {
		s := newScript(t)
		c := s.dial(t, m)
		s.say(t, c, s.id.Worker(), wire.Unary, wire.HandlerHello, nil, hello(t, s.info))
		h := s.next(t, wire.Response, "")
		if h.header[16] != 0 {
			t.Fatalf("answered with %s", h.body)
		}
		s.t.Close()
		for p := m.peers.get(s.id.Worker()); p != nil; { // until its connection is gone here too
			p.mu.Lock()
			gone := p.line == nil
			p.mu.Unlock()
			if gone {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	m.peers.mu.Lock()
	n := len(m.peers.known)
	m.peers.mu.Unlock()
	if n > 8 {
		t.Fatalf("%d peers", n)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if got := f.GetMetric()[0].GetGauge().GetValue(); f.GetName() == "velo_transport_registered_peers" && got != float64(n) {
			t.Errorf("%v peers in the gauge, %d in the table", got, n)
		}
	}
	for i := range 9 {
		err := m.Register(newScript(t).info)
		if want := i == 8; (err != nil) != want {
			t.Fatalf("peer %d of the application: %v", i, err)
		} else if want {
			wantErr(t, err, ErrTooMany)
		}
	}
}

// TestMalformed: what does not parse is dropped, and the connection stays.
func TestMalformed(t *testing.T) {
	m := newNode(t, "tcp", Options{})
	s := newScript(t)
	c := s.dial(t, m)
	for kind := wire.Message; kind <= wire.ShuttingDown; kind++ {
		c.TrySend(frame(t, kind, []byte("nonsense"), "x"))
	}
	id := wire.NewResponseID(m.Worker(), 5, 5) // a call that is not there
	c.TrySend(frame(t, wire.Ack, wire.AppendAckHeader(nil, wire.AckHeader{ID: id}), ""))
	s.say(t, c, s.id.Worker(), wire.Unary, wire.HandlerListHandlers, nil, "")
	if h := s.next(t, wire.Response, ""); !strings.Contains(string(h.body), wire.HandlerHello) {
		t.Fatalf("answered with %s", h.body)
	}
}

func TestStaged(t *testing.T) {
	payload := strings.Repeat("0123456789", 100)
	good := wire.AcquireAnswer{LeaseID: 4, TransferID: 5, TotalLen: 1000, ChunkSize: 300, ChunkCount: 4}
	for _, c := range []struct {
		name   string
		owner  int // added to the sender's worker
		answer wire.AcquireAnswer
		cut    int // off every chunk
		want   error
	}{
		{name: "good", answer: good},
		{name: "somebody else's", owner: 1, want: wire.ErrBody},
		{name: "too long", answer: wire.AcquireAnswer{TotalLen: 5001, ChunkSize: 5001, ChunkCount: 1}, want: ErrTooMany},
		{name: "cut", answer: good, cut: 1, want: wire.ErrBody},
		{name: "does not add up", answer: wire.AcquireAnswer{TotalLen: 10, ChunkSize: 1, ChunkCount: 1}, want: wire.ErrBody},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, s := newNode(t, "tcp", Options{Staged: 5000}), newScript(t)
			if err := m.Register(s.info); err != nil {
				t.Fatal(err)
			}
			got := make(chan string, 2)
			m.Handle("_x", func(_ context.Context, m Message) ([]byte, error) { got <- string(m.Body); return m.Body, nil })
			m.HandleNow("_now", func(_ wire.WorkerID, payload []byte) { got <- string(payload) })
			in := s.dial(t, m)
			h := wire.DataHandle{Hi: s.id.Worker() + wire.WorkerID(c.owner), Lo: 1}
			headers := map[string]string{wire.HeaderRendezvous: h.String()}
			s.say(t, in, s.id.Worker(), wire.Unary, "_x", headers, "")
			if c.want == nil {
				s.say(t, in, s.id.Worker(), wire.FireAndForget, "_now", headers, "")
			}
			released, answers := 0, 0
			for answers < 1 || c.want == nil && released < 2 {
				switch f := get(t, s.frames); string(f.message.Handler) {
				case wire.HandlerHello:
					s.answer(t, f, `{"handlers":[]}`)
				case wire.HandlerAcquire:
					s.answer(t, f, string(wire.EncodeAcquireAnswer(&c.answer)))
				case wire.HandlerPull:
					var r wire.PullRequest
					if err := json.Unmarshal(f.body, &r); err != nil || r.TransferID != 5 {
						t.Fatal(r, err)
					}
					at := int(r.ChunkIndex) * 300
					s.answer(t, f, payload[at:min(at+300, 1000)-c.cut])
				case wire.HandlerRelease:
					released++
				default:
					answers++
					failed := f.header[16] != 0
					if failed != (c.want != nil) || failed && !strings.Contains(string(f.body), c.want.Error()) {
						t.Fatalf("answered with %s", f.body)
					}
				}
			}
			for range released {
				if c.want == nil && get(t, got) != payload {
					t.Fatal("another payload came")
				}
			}
			m.Close()
			if m.pulled.left != 4*5000 {
				t.Fatalf("%d bytes left", m.pulled.left)
			}
		})
	}
}
