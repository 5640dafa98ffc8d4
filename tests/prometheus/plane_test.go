// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// planes are nodes of the response plane: a worker that streams to a frontend, both
// scraped, beside the one that the daemon hosts.
type planes struct {
	frontend, worker *plane.Node
	targets          []string // where both are scraped
	daemon           wire.PeerInfo
}

const (
	silence = time.Second // of a peer, until it is asked whether it lives
	accept  = time.Second // how long an offered stream is waited for
)

var loopback = []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}

func newPlanes(t *testing.T) *planes {
	p := &planes{}
	p.frontend = p.scraped(t, plane.Options{Mux: mux.Options{Silence: silence}, AcceptWindow: accept})
	p.worker = p.scraped(t, plane.Options{Mux: mux.Options{Flush: mux.Flush{Linger: time.Millisecond}, Linger: 50 * time.Millisecond}})
	known(t, p.worker, p.frontend.PeerInfo())
	known(t, p.frontend, p.worker.PeerInfo())
	p.frontend.Messages().Handle("echo", func(_ context.Context, m messenger.Message) ([]byte, error) {
		time.Sleep(20 * time.Millisecond)
		return m.Body, nil
	})
	return p
}

// scraped starts a node whose metrics are served.
func (p *planes) scraped(t *testing.T, o plane.Options) *plane.Node {
	t.Helper()
	r := prometheus.NewRegistry()
	o.Metrics = r
	n := node(t, o)
	srv := httptest.NewServer(promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(srv.Close)
	p.targets = append(p.targets, srv.Listener.Addr().String())
	return n
}

func node(t *testing.T, o plane.Options) *plane.Node {
	t.Helper()
	n, err := started(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func started(o plane.Options) (*plane.Node, error) {
	o.Listen = loopback
	return plane.New(o)
}

func known(t *testing.T, n interface{ Register(wire.PeerInfo) error }, peer wire.PeerInfo) {
	t.Helper()
	if err := n.Register(peer); err != nil {
		t.Fatal(err)
	}
}

// planeSettings has a daemon host a node, which the file of the discovery tells of.
func planeSettings(t *testing.T, dir string) settings {
	t.Helper()
	return settings{"enabled": true, "listen": freePort(t), "discovery": filepath.Join(openFolder(t, dir), "peers.json")}
}

// find reads the daemon's node from its discovery.
func (p *planes) find(t *testing.T, conf settings) {
	t.Helper()
	path := conf["plane"].(settings)["discovery"].(string)
	eventually(t, 20*time.Second, func() error {
		list, err := peersIn(path)
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("%d peers in %s", len(list), path)
		}
		if err != nil {
			return err
		}
		p.daemon, err = discovery.NewFile(path).ByInstance(t.Context(), list[0])
		return err
	})
	known(t, p.worker, p.daemon)
}

// stream moves the plane until x ends. Each cause goes on over and over; an error ends
// one round of it, and what was not caused shows in what is asked of Prometheus.
func (p *planes) stream(t *testing.T, x *traffic) {
	over := func(every time.Duration, f func(ctx context.Context) error) {
		x.wg.Go(func() {
			for x.ctx.Err() == nil {
				ctx, cancel := context.WithTimeout(x.ctx, 20*time.Second)
				_ = f(ctx)
				cancel()
				x.pause(every)
			}
		})
	}
	over(20*time.Millisecond, p.byTicket)
	over(20*time.Millisecond, p.byAttach)
	for range 4 {
		over(0, p.slowly)
	}
	over(200*time.Millisecond, p.unclaimed)
	over(500*time.Millisecond, p.lostPeer)
	over(time.Second, p.clogged)
	over(20*time.Millisecond, p.calls)
	over(200*time.Millisecond, p.ofTheDaemon)
	over(100*time.Millisecond, p.drained)
	p.withoutMux(t, over)
	p.hostile(t, over)
}

// read reads a stream to its end, with a rest after each record.
func read(ctx context.Context, a *plane.Anchor, rest time.Duration) error {
	defer a.Close()
	for {
		if _, err := a.Recv(ctx); err != nil {
			return err
		}
		if rest > 0 {
			pause(ctx, rest)
		}
	}
}

// feed sends n records and finalizes.
func feed(ctx context.Context, s *plane.Sender, n int) error {
	for range n {
		if err := s.Send(ctx, []byte("token")); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return s.Finalize()
}

func (p *planes) byTicket(ctx context.Context) error {
	a, err := p.frontend.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	ticket, err := a.Ticket(0)
	if err != nil {
		return err
	}
	s, err := p.worker.Open(a.Handle(), ticket)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	done := make(chan error, 1)
	go func() { done <- feed(ctx, s, 100) }()
	return errors.Join(read(ctx, a, 0), <-done)
}

// byAttach attaches to an anchor, which is detached and cancelled, and to none.
func (p *planes) byAttach(ctx context.Context) error {
	a, err := p.frontend.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	defer a.Close()
	s, err := p.worker.Attach(ctx, a.Handle())
	if err != nil {
		return err
	}
	if err := errors.Join(s.Send(ctx, []byte("token")), s.Detach()); err != nil {
		return err
	}
	for err == nil {
		_, err = a.Recv(ctx)
	}
	if s, err = p.worker.Attach(ctx, a.Handle()); err != nil {
		return err
	}
	a.Stop()
	a.Close()
	<-s.Done()
	_, err = p.worker.Attach(ctx, a.Handle())
	return err
}

// slowly streams to a consumer that rests after each record.
func (p *planes) slowly(ctx context.Context) error {
	a, err := p.frontend.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	s, err := p.worker.Attach(ctx, a.Handle())
	if err != nil {
		return errors.Join(err, a.Close())
	}
	done := make(chan error, 1)
	go func() { done <- feed(ctx, s, 400) }()
	return errors.Join(read(ctx, a, 5*time.Millisecond), <-done)
}

// unclaimed offers a stream that never begins.
func (p *planes) unclaimed(ctx context.Context) error {
	a, err := p.frontend.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	if _, err := a.Ticket(0); err != nil {
		return err
	}
	return read(ctx, a, 0)
}

// calls calls handlers that are there, and one that is not.
func (p *planes) calls(ctx context.Context) error {
	to := p.frontend.Worker()
	_, err := p.worker.Messages().Call(ctx, to, "echo", bytes.Repeat([]byte("x"), 1000))
	_, missing := p.worker.Messages().Call(ctx, to, "_nobody", nil)
	return errors.Join(err, missing)
}

// ofTheDaemon asks the daemon's node, which has no anchor, for one, and sends it what
// is no frame.
func (p *planes) ofTheDaemon(ctx context.Context) error {
	_, err := p.worker.Attach(ctx, wire.Handle{Hi: p.daemon.Instance.Worker(), Lo: 1})
	return errors.Join(err, garbage(ctx, p.daemon))
}

// garbage speaks another protocol to a node.
func garbage(ctx context.Context, to wire.PeerInfo) error {
	address, err := tcpOf(to)
	if err != nil {
		return err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: plane\r\n\r\n"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c) // until it is closed
	return err
}

// drained calls a node that takes no new messages, as it is about to end.
func (p *planes) drained(ctx context.Context) error {
	n, err := started(plane.Options{})
	if err != nil {
		return err
	}
	defer n.Close()
	if err := p.worker.Register(n.PeerInfo()); err != nil {
		return err
	}
	if err := n.Drain(ctx); err != nil {
		return err
	}
	_, err = p.worker.Messages().Call(ctx, n.Worker(), "echo", nil)
	return err
}

func tcpOf(p wire.PeerInfo) (string, error) {
	list, err := endpoints(p)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(list[0].IP.String(), fmt.Sprint(list[0].Port)), nil
}

func endpoints(p wire.PeerInfo) ([]wire.Endpoint, error) {
	entries, err := p.Address.Entries()
	if err != nil {
		return nil, err
	}
	list, err := wire.ParseEndpoints(entries["tcp"])
	if err == nil && len(list) == 0 {
		err = errors.New("the peer listens nowhere")
	}
	return list, err
}
