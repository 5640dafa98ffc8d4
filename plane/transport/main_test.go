// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/plane/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frame is a frame of that type whose header is one word and whose payload is filled with it.
func frame(t wire.FrameType, word uint32, payload int) []byte {
	b := wire.AppendPreamble(nil, t, 4, payload)
	b = binary.BigEndian.AppendUint32(b, word)
	return append(b, bytes.Repeat([]byte{byte(word)}, payload)...)
}

// taken is a frame that a handler saw.
type taken struct {
	c    *Conn
	t    wire.FrameType
	word uint32
	size int
	good bool
}

// recorder is a Handler that keeps what it sees.
type recorder struct {
	frames chan taken
	closed chan error
}

func newRecorder() *recorder {
	return &recorder{frames: make(chan taken, 100_000), closed: make(chan error, 10_000)}
}

func (r *recorder) Frame(c *Conn, t wire.FrameType, header, payload []byte) {
	word := binary.BigEndian.Uint32(header)
	good := bytes.Count(payload, []byte{byte(word)}) == len(payload)
	r.frames <- taken{c: c, t: t, word: word, size: len(payload), good: good}
}

func (r *recorder) Closed(_ *Conn, err error) { r.closed <- err }

// next waits for a frame.
func (r *recorder) next(t *testing.T) taken {
	t.Helper()
	select {
	case f := <-r.frames:
		return f
	case err := <-r.closed:
		if len(r.frames) > 0 { // they were before it
			r.closed <- err
			return <-r.frames
		}
		t.Fatalf("the connection ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("no frame within 10 s")
	}
	panic("unreachable")
}

func (r *recorder) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.closed:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("no end within 10 s")
	}
	panic("unreachable")
}

func newTransport(t *testing.T, network string, h Handler, o Options) *Transport {
	t.Helper()
	tr, err := New(network, h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

func anywhere(t *testing.T, network string) string {
	if network == "unix" {
		return filepath.Join(t.TempDir(), "s")
	}
	return "127.0.0.1:0"
}

func listen(t *testing.T, tr *Transport) string {
	t.Helper()
	l, err := tr.Listen(anywhere(t, tr.network))
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

func dial(t *testing.T, tr *Transport, address string) *Conn {
	t.Helper()
	c, err := tr.Dial(context.Background(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// plain is a connection of a peer that writes bytes of its own.
func plain(t *testing.T, network, address string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
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
