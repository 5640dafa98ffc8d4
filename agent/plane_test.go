// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/config"
	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// streaming is a daemon that hosts a node, where a peer's stream runs.
type streaming struct {
	d      *Daemon
	host   *planeHost
	log    *bytes.Buffer // read it when the daemon has stopped
	anchor *plane.Anchor
	sender *plane.Sender // of the peer
	peers  *discovery.File
}

func startStreaming(t *testing.T, drain time.Duration) *streaming {
	t.Helper()
	path := filepath.Join(t.TempDir(), "peers.json")
	conf := config.Default()
	conf.Plane.Enabled, conf.Plane.Listen, conf.Plane.Discovery, conf.DrainTimeout = true, "127.0.0.1:0", path, drain
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	s := &streaming{d: &Daemon{log: log}, host: &planeHost{conf: &conf.Plane, log: log}, log: &text, peers: discovery.NewFile(path)}
	s.d.conf.Store(conf)
	s.host.run(t.Context())
	n := s.host.node.Load()
	if n == nil {
		t.Fatalf("the node does not run: %s", &text)
	}
	peer, err := plane.New(plane.Options{Listen: []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}, Discovery: s.peers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	if err := n.Register(peer.PeerInfo()); err != nil {
		t.Fatal(err)
	}
	if s.anchor, err = n.NewAnchor(plane.AnchorOptions{}); err != nil {
		t.Fatal(err)
	}
	if s.sender, err = peer.Attach(t.Context(), s.anchor.Handle()); err != nil {
		t.Fatal(err)
	}
	s.pass(t, "before")
	return s
}

// pass has a record go from the peer to the daemon's node.
func (s *streaming) pass(t *testing.T, record string) {
	t.Helper()
	if err := s.sender.Send(t.Context(), []byte(record)); err != nil {
		t.Fatalf("sending %q: %v", record, err)
	}
	if b, err := s.anchor.Recv(t.Context()); err != nil || string(b) != record {
		t.Fatalf("%q came (%v), want %q", b, err, record)
	}
}

// stop does what a SIGTERM does once the probes are gone; what comes is its error.
func (s *streaming) stop(t *testing.T) <-chan error {
	t.Helper()
	worker := s.host.node.Load().Worker()
	done := make(chan error, 1)
	go func() {
		var wg sync.WaitGroup
		done <- s.d.shutDown(s.host, nil, &wg)
	}()
	for {
		if _, err := s.peers.ByWorker(t.Context(), worker); errors.Is(err, discovery.ErrNotFound) {
			return done
		}
		time.Sleep(time.Millisecond)
	}
}

// draining waits until the node takes no new streams.
func (s *streaming) draining(t *testing.T) {
	t.Helper()
	for {
		a, err := s.host.node.Load().NewAnchor(plane.AnchorOptions{})
		if errors.Is(err, plane.ErrDraining) {
			return
		}
		if err != nil {
			t.Fatalf("a new anchor while the node drains: %v", err)
		}
		a.Close()
		time.Sleep(time.Millisecond)
	}
}

// TestPlaneStops: a stop lets a stream that runs go on to its own end.
func TestPlaneStops(t *testing.T) {
	s := startStreaming(t, time.Minute)
	done := s.stop(t)
	s.draining(t)
	s.pass(t, "after")
	select {
	case err := <-done:
		t.Fatalf("it stopped while a stream runs: %v", err)
	default:
	}
	if err := s.sender.Finalize(); err != nil {
		t.Error(err)
	}
	if _, err := s.anchor.Recv(t.Context()); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if l := s.log.String(); strings.Contains(l, "cut off") || strings.Count(l, "plane stopped") != 1 {
		t.Errorf("the log says %s", l)
	}
}

// TestPlaneStopsInTime: what still runs after drain_timeout is ended, once, at both ends.
func TestPlaneStopsInTime(t *testing.T) {
	s := startStreaming(t, 500*time.Millisecond)
	done := s.stop(t)
	s.draining(t)
	s.pass(t, "after")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // it ends for good
		if b, err := s.anchor.Recv(ctx); !errors.Is(err, plane.ErrClosed) {
			t.Errorf("the stream ends with %v (%q), want %v", err, b, plane.ErrClosed)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	select {
	case <-s.sender.Done():
	case <-ctx.Done():
		t.Fatal("the sender is not told")
	}
	if err := s.sender.Err(); !errors.Is(err, plane.ErrPeerLost) && !errors.Is(err, plane.ErrCancelled) {
		t.Errorf("the sender ends with %v", err)
	}
	if err := s.sender.Send(ctx, []byte("late")); err == nil {
		t.Error("it sends on")
	}
	if l := s.log.String(); strings.Count(l, "streams were cut off") != 1 || strings.Count(l, "plane stopped") != 1 {
		t.Errorf("the log says %s", l)
	}
}

// TestPlaneStopsFree: an anchor that nobody came to holds up no stop.
func TestPlaneStopsFree(t *testing.T) {
	s := startStreaming(t, time.Hour)
	free, err := s.host.node.Load().NewAnchor(plane.AnchorOptions{Unattached: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.sender.Finalize(); err != nil {
		t.Error(err)
	}
	if _, err := s.anchor.Recv(t.Context()); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
	if err := <-s.stop(t); err != nil {
		t.Error(err)
	}
	if _, err := free.Recv(t.Context()); !errors.Is(err, plane.ErrUnattached) {
		t.Errorf("a free anchor ends with %v", err)
	}
}

// TestPlaneAdvertises: what the configuration advertises is what others find.
func TestPlaneAdvertises(t *testing.T) {
	conf := config.Default()
	conf.Plane.Listen, conf.Plane.Advertise = "127.0.0.1:0", "192.0.2.5:9767"
	conf.Plane.Discovery = filepath.Join(t.TempDir(), "peers.json")
	h := &planeHost{conf: &conf.Plane, log: slog.New(slog.DiscardHandler)}
	h.run(t.Context())
	n := h.node.Load()
	found, err := discovery.NewFile(conf.Plane.Discovery).ByWorker(t.Context(), n.Worker())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := found.Address.Entries()
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries (%v), want tcp alone", len(entries), err)
	}
	list, err := wire.ParseEndpoints(entries["tcp"])
	if err != nil || len(list) != 1 || netip.AddrPortFrom(list[0].IP, list[0].Port).String() != conf.Plane.Advertise {
		t.Errorf("others find %v (%v), want %s", list, err, conf.Plane.Advertise)
	}
	if err := h.stop(t.Context()); err != nil {
		t.Error(err)
	}
}
