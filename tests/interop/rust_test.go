// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// patience is how long any one answer of a Rust peer may take.
const patience = 30 * time.Second

// rust is one Rust peer, driven over its stdin and stdout (README.md).
type rust struct {
	t       *testing.T
	version string
	cmd     *exec.Cmd
	in      io.WriteCloser
	peer    wire.PeerInfo

	mu     sync.Mutex
	last   int
	waits  map[string]chan event
	ended  chan struct{}
	closed bool
}

// event is any line of a peer.
type event struct {
	Event     string        `json:"event"`
	ID        string        `json:"id"`
	Text      string        `json:"text"`
	Peer      wire.PeerInfo `json:"peer"`
	Handle    wire.Handle   `json:"handle"`
	Ticket    *wire.Ticket  `json:"ticket"`
	Transport *string       `json:"transport"`
	Records   int           `json:"records"`
	Bad       int           `json:"bad"`
	Sent      int           `json:"sent"`
	How       string        `json:"how"`
	Count     int           `json:"count"`
	Senders   map[string]struct {
		Records int    `json:"records"`
		How     string `json:"how"`
	} `json:"senders"`
}

// built is where a peer of a version was built.
func built(version string) string {
	return map[string]string{"0.12.0": "velo12/target/release/velo12", "0.21.0": "velo21/target/release/velo21"}[version]
}

// start runs a peer of the version.
func start(t *testing.T, version string, flags ...string) *rust {
	t.Helper()
	path := built(version)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Skipf("%s is not built: `make interop` builds it and runs these tests", path)
	}
	r := &rust{t: t, version: version, waits: map[string]chan event{}, ended: make(chan struct{})}
	r.cmd = exec.CommandContext(t.Context(), path, append([]string{"--listen", "127.0.0.1:0"}, flags...)...)
	r.cmd.Stderr = os.Stderr
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := r.wait("")
	go r.read(out)
	t.Cleanup(r.quit)
	r.peer = r.next(ready, "ready").Peer
	return r
}

func (r *rust) read(out io.Reader) {
	defer close(r.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.t.Errorf("the %s peer says %q: %v", r.version, lines.Text(), err)
			continue
		}
		r.wait(e.ID) <- e
	}
}

// wait is where the events of a command come.
func (r *rust) wait(id string) chan event {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.waits[id]
	if c == nil {
		c = make(chan event, 64)
		r.waits[id] = c
	}
	return c
}

// command sends one and returns where its events come.
func (r *rust) command(fields map[string]any) chan event {
	r.t.Helper()
	r.mu.Lock()
	r.last++
	id := strconv.Itoa(r.last)
	r.mu.Unlock()
	fields["id"] = id
	c := r.wait(id)
	line, err := json.Marshal(fields)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.in.Write(append(line, '\n')); err != nil && !r.closed {
		r.t.Errorf("telling the %s peer: %v", r.version, err)
	}
	return c
}

// next waits for an event of a kind and skips others.
func (r *rust) next(c chan event, kind string) event {
	r.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case e := <-c:
			switch e.Event {
			case kind:
				return e
			case "error":
				r.t.Fatalf("the %s peer: %s", r.version, e.Text)
			case "bad":
				r.t.Errorf("the %s peer got a wrong record: %s", r.version, e.Text)
			}
		case <-late.C:
			r.t.Fatalf("no event %q of the %s peer in %v", kind, r.version, patience)
		}
	}
}

// ask sends a command and waits for its event of a kind.
func (r *rust) ask(kind string, fields map[string]any) event {
	r.t.Helper()
	return r.next(r.command(fields), kind)
}

func (r *rust) kill() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	_ = r.cmd.Process.Kill()
	<-r.ended
}

func (r *rust) quit() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.in.Close()
	select {
	case <-r.ended:
	case <-time.After(5 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	_ = r.cmd.Wait() // killed, or told by its events
}

// anchor makes an anchor at the peer; its end comes to the channel.
func (r *rust) anchor(fields map[string]any) (event, chan event) {
	r.t.Helper()
	fields["cmd"] = "anchor"
	if fields["kind"] == nil {
		fields["kind"] = "spsc"
	}
	c := r.command(fields)
	return r.next(c, "anchor"), c
}

// produce begins a stream from the peer.
func (r *rust) produce(h wire.Handle, fields map[string]any) chan event {
	r.t.Helper()
	fields["cmd"], fields["handle"] = "produce", h
	return r.command(fields)
}

// metric reads a counter of the peer.
func (r *rust) metrics() string {
	r.t.Helper()
	return r.ask("metrics", map[string]any{"cmd": "metrics"}).Text
}

func (r *rust) String() string { return fmt.Sprintf("velo %s", r.version) }
