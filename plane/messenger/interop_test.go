// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// rust is a velo peer of tests/interop.
type rust struct {
	t      *testing.T
	in     io.Writer
	events chan map[string]json.RawMessage
	info   wire.PeerInfo
	n      int
}

func startRust(t *testing.T, version string, flags ...string) *rust {
	t.Helper()
	path := filepath.Join("../../tests/interop", "velo"+version, "target/release", "velo"+version)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the Rust peer is not built: cargo build --locked --release in tests/interop/velo%s", version)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, flags...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &rust{t: t, in: in, events: make(chan map[string]json.RawMessage, 100)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var e map[string]json.RawMessage
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("reading %q: %v", lines.Text(), err)
			}
			r.events <- e
		}
	}()
	t.Cleanup(func() {
		in.Close()
		time.AfterFunc(5*time.Second, cancel)
		<-read
		cmd.Wait()
		cancel()
	})
	if err := json.Unmarshal(r.event("ready")["peer"], &r.info); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rust) event(want string) map[string]json.RawMessage {
	r.t.Helper()
	e := get(r.t, r.events)
	if string(e["event"]) != `"`+want+`"` {
		r.t.Fatalf("event %s %s, want %s", e["event"], e["text"], want)
	}
	return e
}

func (r *rust) do(cmd string, fields map[string]any) {
	r.t.Helper()
	r.n++
	line := map[string]any{"cmd": cmd, "id": fmt.Sprint(r.n)}
	for k, v := range fields {
		line[k] = v
	}
	b, err := json.Marshal(line)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.in.Write(append(b, '\n')); err != nil {
		r.t.Fatal(err)
	}
}

// text is the event's text.
func text(t *testing.T, e map[string]json.RawMessage) (s string) {
	t.Helper()
	if err := json.Unmarshal(e["text"], &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRust talks to velo itself, both ways, over both transports.
func TestRust(t *testing.T) {
	for _, version := range []string{"12", "21"} {
		for _, network := range []string{"tcp", "unix"} {
			t.Run("velo"+version+" "+network, func(t *testing.T) { testRust(t, version, network) })
		}
	}
}

func testRust(t *testing.T, version, network string) {
	flags := []string{"--listen", "127.0.0.1:0"}
	if network == "unix" {
		flags = []string{"--uds", filepath.Join(t.TempDir(), "rust")}
	}
	m := newNode(t, network, Options{})
	m.Handle("echo", echo)
	m.Handle("refuse", func(context.Context, Message) ([]byte, error) { return nil, words("no luck") })
	fired := make(chan wire.WorkerID, 1)
	m.Handle("count", func(_ context.Context, m Message) ([]byte, error) { fired <- m.From; return nil, nil })
	r := startRust(t, version, flags...)
	if err := m.Register(r.info); err != nil {
		t.Fatal(err)
	}
	to := r.info.Instance.Worker()
	large := strings.Repeat("0123456789", 40_000) // the Rust node stages its call

	// Unary, from here: the hello has made us known there.
	for _, s := range []string{`"hello"`, `""`, `"` + large + `"`} {
		if got, err := m.Call(soon(t), to, "echo", []byte(s)); err != nil || string(got) != s {
			t.Fatalf("%d bytes came back of %d: %v", len(got), len(s), err)
		}
	}
	if err := m.Healthy(soon(t), to); err != nil {
		t.Error(err)
	}
	if err := m.WaitForHandler(soon(t), to, wire.HandlerAttach); err != nil {
		t.Error(err)
	}
	if _, err := m.Call(soon(t), to, "echo", []byte("no JSON")); err == nil || !strings.Contains(err.Error(), "deserialize") {
		t.Errorf("a body that is no JSON: %v", err)
	}
	if _, err := m.Call(soon(t), to, "_nothing", nil); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a handler that is not there: %v", err)
	}
	_, err := m.Call(soon(t), to, "nothing", nil)
	wantErr(t, err, ErrNoHandler)
	if err := m.Ack(soon(t), to, "count", nil); err != nil {
		t.Error(err)
	}
	if err := m.Fire(soon(t), to, "count", nil); err != nil {
		t.Error(err)
	}
	for count := ""; count != "2"; {
		r.do("counted", nil)
		count = string(r.event("counted")["count"])
	}

	// Unary, from there.
	for _, s := range []string{"hello", large} {
		r.do("unary", map[string]any{"peer": m.Instance(), "handler": "echo", "text": s})
		if got := text(t, r.event("reply")); got != s {
			t.Fatalf("%d bytes came back of %d", len(got), len(s))
		}
	}
	r.do("unary", map[string]any{"peer": m.Instance(), "handler": "refuse", "text": ""})
	if got := text(t, r.event("error")); !strings.Contains(got, "no luck") {
		t.Errorf("an error there reads %q", got)
	}
	r.do("unary", map[string]any{"peer": m.Instance(), "handler": "nothing", "text": ""})
	r.event("error")
	r.do("fire", map[string]any{"peer": m.Instance(), "handler": "count"})
	r.event("fired")
	if from := get(t, fired); from != to {
		t.Errorf("fired by %d", from)
	}

	// Their drain, then ours.
	r.do("gate", nil)
	r.event("gated")
	_, err = m.Call(soon(t), to, "echo", []byte(`"x"`))
	wantErr(t, err, ErrShuttingDown)
	if err := m.Drain(soon(t)); err != nil {
		t.Fatal(err)
	}
	r.do("unary", map[string]any{"peer": m.Instance(), "handler": "echo", "text": "x"})
	if got := text(t, r.event("error")); !strings.Contains(got, "shutting down") {
		t.Errorf("our drain reads %q there", got)
	}
}

// TestRustDiscovers: both find each other in velo's discovery file.
func TestRustDiscovers(t *testing.T) {
	for _, version := range []string{"12", "21"} {
		t.Run("velo"+version, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "peers.json")
			file := discovery.NewFile(path)
			m := newNode(t, "tcp", Options{Discovery: file})
			m.Handle("echo", echo)
			guard, err := file.Register(m.PeerInfo())
			if err != nil {
				t.Fatal(err)
			}
			r := startRust(t, version, "--listen", "127.0.0.1:0", "--discovery", path)
			if got, err := m.Call(soon(t), r.info.Instance.Worker(), "echo", []byte(`"x"`)); err != nil || string(got) != `"x"` {
				t.Fatal(string(got), err)
			}
			r.do("discover", map[string]any{"peer": m.Instance()})
			r.event("registered")
			r.do("unary", map[string]any{"peer": m.Instance(), "handler": "echo", "text": "x"})
			r.event("reply")
			if err := guard.Unregister(); err != nil {
				t.Fatal(err)
			}
			r.do("discover", map[string]any{"peer": m.Instance()})
			r.event("error")
			if _, err := file.ByInstance(soon(t), r.info.Instance); err != nil {
				t.Error(err)
			}
		})
	}
}
