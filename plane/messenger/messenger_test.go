// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/wire"
)

func TestCalls(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			metrics, err := NewMetrics(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			a, b := pair(t, network, Options{}, Options{Metrics: metrics})
			fired := make(chan Message, 1)
			b.Handle("echo", echo)
			b.Handle("_own", echo)
			b.Handle("fails", func(context.Context, Message) ([]byte, error) { return nil, errors.New("no luck") })
			b.Handle("panics", func(context.Context, Message) ([]byte, error) { panic("of course") })
			b.Handle("fired", func(_ context.Context, m Message) ([]byte, error) { fired <- m; return nil, nil })
			ctx := soon(t)
			for _, c := range []struct {
				name    string
				handler string
				body    string
				want    string
				text    string // of a RemoteError
				err     error
			}{
				{name: "echo", handler: "echo", body: "hello", want: "hello"},
				{name: "empty", handler: "echo"},
				{name: "large", handler: "echo", body: strings.Repeat("x", 1<<20), want: strings.Repeat("x", 1<<20)},
				{name: "own", handler: "_own", body: "1", want: "1"},
				{name: "fails", handler: "fails", text: "no luck"},
				{name: "panics", handler: "panics", text: "Handler failed: handler panicked"},
				{name: "missing", handler: "nothing", err: ErrNoHandler},
				{name: "own missing", handler: "_nothing", text: "Handler '_nothing' not found"},
				{name: "too large", handler: "echo", body: strings.Repeat("x", wire.MaxFrame), err: wire.ErrFrameSize},
			} {
				t.Run(c.name, func(t *testing.T) {
					for kind, call := range map[string]func() ([]byte, error){
						"unary": func() ([]byte, error) { return a.Call(ctx, b.Worker(), c.handler, []byte(c.body)) },
						"ack":   func() ([]byte, error) { return nil, a.Ack(ctx, b.Worker(), c.handler, []byte(c.body)) },
					} {
						got, err := call()
						var remote *RemoteError
						switch {
						case c.err != nil:
							wantErr(t, err, c.err)
						case c.text != "":
							if !errors.As(err, &remote) || remote.Text != c.text {
								t.Errorf("%s: %v, want the peer's %q", kind, err, c.text)
							}
						case err != nil:
							t.Errorf("%s: %v", kind, err)
						case kind == "unary" && string(got) != c.want:
							t.Errorf("%d bytes, want %d", len(got), len(c.want))
						}
					}
				})
			}
			if err := a.Fire(ctx, b.Worker(), "fired", []byte("x")); err != nil {
				t.Fatal(err)
			}
			if m := get(t, fired); m.From != a.Worker() || m.Kind != wire.FireAndForget || string(m.Body) != "x" {
				t.Errorf("fired %+v", m)
			}
			if got := value(t, metrics.requests.WithLabelValues("echo", "unary", "success")); got != 3 {
				t.Errorf("%v unary calls of echo counted, want 3", got)
			}
			if got := value(t, metrics.pending); got != 0 {
				t.Errorf("%v calls wait", got)
			}
		})
	}
}

// TestOwnAnswers: b was told nothing of a, and answers it all the same.
func TestOwnAnswers(t *testing.T) {
	a, b := pair(t, "tcp", Options{}, Options{})
	b.Handle("_echo", echo)
	if _, known := b.Peer(a.Worker()); known {
		t.Fatal("known before a word was said")
	}
	if _, err := a.Call(soon(t), b.Worker(), "_echo", nil); err != nil {
		t.Fatal(err)
	}
	info, known := b.Peer(a.Worker())
	if !known || !bytes.Equal(info.Address, a.PeerInfo().Address) {
		t.Fatalf("after the hello known: %v, as %x", known, info.Address)
	}
	// A node that listens nowhere is answered on its own connection.
	c := newNode(t, "", Options{})
	register(t, c, b)
	if got, err := c.Call(soon(t), b.Worker(), "_echo", []byte("x")); err != nil || string(got) != "x" {
		t.Fatal(string(got), err)
	}
}

func TestUnknownPeer(t *testing.T) {
	a := newNode(t, "tcp", Options{})
	if _, err := a.Call(soon(t), 5, "x", nil); !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
	wantErr(t, a.Fire(soon(t), 5, "x", nil), ErrUnknownPeer)
	wantErr(t, a.Healthy(soon(t), 5), ErrUnknownPeer)
	far := wire.PeerInfo{Instance: wire.NewInstanceID(), Address: wire.NewAddress(map[string][]byte{"quic": {1}})}
	wantErr(t, a.Register(far), ErrNoRoute)
	far.Address = wire.NewAddress(map[string][]byte{"tcp": {1}})
	wantErr(t, a.Register(far), wire.ErrAddress)
}

func TestManyCallsAtOnce(t *testing.T) {
	a, b := pair(t, "tcp", Options{}, Options{})
	b.Handle("echo", echo)
	ctx := soon(t)
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			want := fmt.Sprint(i)
			if got, err := a.Call(ctx, b.Worker(), "echo", []byte(want)); err != nil || string(got) != want {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		})
	}
	wg.Wait()
	if n := len(b.peers.lines()); n != 1 {
		t.Errorf("%d connections for the answers", n)
	}
}

func TestHandleNow(t *testing.T) {
	a, b := pair(t, "tcp", Options{}, Options{})
	const n = 5000
	var got []string
	done := make(chan struct{})
	b.HandleNow("_now", func(from wire.WorkerID, payload []byte) {
		if from != a.Worker() {
			t.Errorf("from %d", from)
		}
		if got = append(got, string(payload)); len(got) == n {
			close(done)
		}
	})
	for i := range n {
		if err := a.Fire(soon(t), b.Worker(), "_now", []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	get(t, done)
	for i, s := range got {
		if s != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, s)
		}
	}
	// Asked as a call, it is acknowledged.
	if err := a.Ack(soon(t), b.Worker(), "_now", nil); err != nil {
		t.Fatal(err)
	}
}

func TestWaitForHandler(t *testing.T) {
	a, b := pair(t, "tcp", Options{}, Options{})
	time.AfterFunc(150*time.Millisecond, func() { b.Handle("late", echo) })
	if err := a.WaitForHandler(soon(t), b.Worker(), "late"); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if err := a.WaitForHandler(soon(t), b.Worker(), "late"); err != nil {
		t.Fatal("the list is known:", err)
	}
	wantErr(t, a.WaitForHandler(soon(t), b.Worker(), "later"), ErrPeerLost)
}

func TestPeerLost(t *testing.T) {
	a, b := pair(t, "tcp", Options{}, Options{})
	began := make(chan struct{})
	b.Handle("_hangs", func(ctx context.Context, _ Message) ([]byte, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failed := make(chan error, 1)
	go func() {
		_, err := a.Call(context.Background(), b.Worker(), "_hangs", nil)
		failed <- err
	}()
	get(t, began)
	if err := a.Healthy(soon(t), b.Worker()); err != nil {
		t.Fatal(err)
	}
	b.Close()
	wantErr(t, get(t, failed), ErrPeerLost)
	if err := a.Healthy(soon(t), b.Worker()); err == nil {
		t.Fatal("a closed node is healthy")
	}
	_, err := a.Call(soon(t), b.Worker(), "_hangs", nil)
	wantErr(t, err, ErrPeerLost)
	// The caller's own patience counts too.
	c, d := pair(t, "tcp", Options{}, Options{})
	d.Handle("_hangs", func(ctx context.Context, _ Message) ([]byte, error) { <-ctx.Done(); return nil, nil })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Call(ctx, d.Worker(), "_hangs", nil)
	wantErr(t, err, context.DeadlineExceeded)
	if value(t, c.m.pending) != 0 {
		t.Error("the call that has left still waits")
	}
}

func TestDrain(t *testing.T) {
	a, b := pair(t, "tcp", Options{}, Options{})
	began, release := make(chan struct{}), make(chan struct{})
	b.Handle("slow", func(context.Context, Message) ([]byte, error) {
		close(began)
		<-release
		return []byte("done"), nil
	})
	b.Handle("echo", echo)
	b.Handle(wire.HandlerCancel, echo)
	b.Handle(wire.HandlerAttach, echo)
	slow := make(chan string, 1)
	go func() {
		got, err := a.Call(context.Background(), b.Worker(), "slow", nil)
		slow <- fmt.Sprint(string(got), err)
	}()
	get(t, began)
	drained := make(chan error, 1)
	go func() { drained <- b.Drain(context.Background()) }()
	for !b.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	for _, c := range []struct {
		handler string
		want    error
	}{
		{"echo", ErrShuttingDown},
		{wire.HandlerAttach, ErrShuttingDown},
		{wire.HandlerHello, ErrShuttingDown},
		{wire.HandlerCancel, nil},
	} {
		if _, err := a.Call(soon(t), b.Worker(), c.handler, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.handler, err, c.want)
		}
	}
	// One who comes now is refused its hello, and what streams need still passes.
	c := newNode(t, "tcp", Options{})
	register(t, c, b)
	register(t, b, c)
	if _, err := c.Call(soon(t), b.Worker(), wire.HandlerCancel, nil); err != nil {
		t.Error(err)
	}
	_, err := c.Call(soon(t), b.Worker(), "echo", nil)
	wantErr(t, err, ErrShuttingDown)
	select {
	case err := <-drained:
		t.Fatal("drained while a handler runs:", err)
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	wantErr(t, b.Drain(ctx), context.DeadlineExceeded)
	close(release)
	if err := get(t, drained); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if got := get(t, slow); got != "done<nil>" {
		t.Errorf("the running call got %s", got)
	}
}

func TestPeerInfo(t *testing.T) {
	m := newNode(t, "", Options{Listen: []Listen{listenOn(t, "unix"), listenOn(t, "tcp")}})
	m.AddAddress("tcp-stream", []byte("x"))
	entries, err := m.PeerInfo().Address.Entries()
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 || string(entries["tcp-stream"]) != "x" {
		t.Fatalf("entries %q", entries)
	}
	if path, err := wire.ParseUnixEntry(entries["uds"]); err != nil || path != m.o.Listen[0].Address {
		t.Error(path, err)
	}
	if entries, err = m.addresses.messenger().Entries(); err != nil || len(entries) != 2 {
		t.Errorf("a hello says %q", entries)
	}
}
