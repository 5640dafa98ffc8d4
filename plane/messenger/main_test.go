// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newNode(t *testing.T, network string, o Options) *Messenger {
	t.Helper()
	if o.Listen == nil && network != "" {
		o.Listen = []Listen{listenOn(t, network)}
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func listenOn(t *testing.T, network string) Listen {
	if network == "unix" {
		return Listen{Network: network, Address: filepath.Join(t.TempDir(), "s")}
	}
	return Listen{Network: network, Address: "127.0.0.1:0"}
}

// pair is two nodes, of which the first knows the second.
func pair(t *testing.T, network string, a, b Options) (*Messenger, *Messenger) {
	t.Helper()
	first, second := newNode(t, network, a), newNode(t, network, b)
	register(t, first, second)
	return first, second
}

func register(t *testing.T, at, who *Messenger) {
	t.Helper()
	if err := at.Register(who.PeerInfo()); err != nil {
		t.Fatal(err)
	}
}

// soon is a context that no test outlives.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func echo(_ context.Context, m Message) ([]byte, error) { return m.Body, nil }

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
}

func get[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
	}
	panic("unreachable")
}

// value is what a counter or gauge says, or how often a histogram observed.
func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetCounter().GetValue() + d.GetGauge().GetValue() + float64(d.GetHistogram().GetSampleCount())
}

// script is a peer that is driven by hand: it takes frames and writes what it likes.
type script struct {
	id     wire.InstanceID
	t      *transport.Transport
	frames chan heard
	closed chan error
	info   wire.PeerInfo
}

// heard is a frame that a script got.
type heard struct {
	conn    *transport.Conn
	t       wire.FrameType
	message wire.MessageHeader
	header  []byte
	body    []byte
}

func (s *script) Frame(c *transport.Conn, t wire.FrameType, header, payload []byte) {
	h := heard{conn: c, t: t, header: append([]byte(nil), header...), body: append([]byte(nil), payload...)}
	if t == wire.Message || t == wire.ShuttingDown {
		h.message, _ = wire.ParseMessageHeader(h.header)
	}
	s.frames <- h
}

func (s *script) Flush(*transport.Conn) {}

func (s *script) Closed(_ *transport.Conn, err error) { s.closed <- err }

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{id: wire.NewInstanceID(), frames: make(chan heard, 10_000), closed: make(chan error, 10_000)}
	var err error
	if s.t, err = transport.New("tcp", s, transport.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.t.Close() })
	l, err := s.t.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := l.AddrPort()
	s.info = wire.PeerInfo{Instance: s.id, Address: wire.NewAddress(map[string][]byte{
		"tcp": wire.AppendEndpoints(nil, []wire.Endpoint{{IP: a.Addr(), Port: a.Port(), Prefix: 32, NUMA: -1}}),
	})}
	return s
}

// dial connects to a node's TCP listener.
func (s *script) dial(t *testing.T, m *Messenger) *transport.Conn {
	t.Helper()
	entries, err := m.PeerInfo().Address.Entries()
	if err != nil {
		t.Fatal(err)
	}
	list, err := wire.ParseEndpoints(entries["tcp"])
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.t.Dial(context.Background(), nearest(list, nil)[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// next is the next frame of a type for a handler; others before it are dropped.
func (s *script) next(t *testing.T, kind wire.FrameType, handler string) heard {
	t.Helper()
	for {
		if h := get(t, s.frames); h.t == kind && string(h.message.Handler) == handler {
			return h
		}
	}
}

func (s *script) say(t *testing.T, c *transport.Conn, from wire.WorkerID, kind wire.Kind, handler string, headers map[string]string, body string) {
	t.Helper()
	more, err := wire.AppendHeaders(nil, headers)
	if err != nil {
		t.Fatal(err)
	}
	header, err := wire.AppendMessageHeader(nil, kind, wire.NewResponseID(from, 7, 9), handler, more)
	if err != nil {
		t.Fatal(err)
	}
	c.TrySend(frame(t, wire.Message, header, body))
}

// answer answers a message with a result.
func (s *script) answer(t *testing.T, h heard, body string) {
	t.Helper()
	header, err := wire.AppendResponseHeader(nil, wire.ResponseHeader{ID: h.message.ID, OK: true})
	if err != nil {
		t.Fatal(err)
	}
	h.conn.TrySend(frame(t, wire.Response, header, body))
}

func frame(t *testing.T, kind wire.FrameType, header []byte, body string) []byte {
	t.Helper()
	f, err := frameOf(kind, header, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return f
}
