// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// openFolder is a folder that the daemon's user may write into.
func openFolder(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "peers")
	if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	return path
}

// peersIn are the instances in a discovery file.
func peersIn(path string) (list []wire.InstanceID, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Peers []struct {
			Instance wire.InstanceID `json:"instance_id"`
		}
	}
	err = json.Unmarshal(b, &file)
	for _, p := range file.Peers {
		list = append(list, p.Instance)
	}
	return list, err
}

// lostPeer ends a node that the worker streams to.
func (p *planes) lostPeer(ctx context.Context) error {
	n, err := started(plane.Options{})
	if err != nil {
		return err
	}
	defer n.Close()
	a, err := n.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	if err := p.worker.Register(n.PeerInfo()); err != nil {
		return err
	}
	s, err := p.worker.Attach(ctx, a.Handle())
	if err != nil {
		return err
	}
	if err := s.Send(ctx, []byte("token")); err != nil {
		return err
	}
	_, err = a.Recv(ctx)
	return errors.Join(err, n.Close())
}

// clogged lets the worker talk to a node over a way that passes nothing on any more, and
// then ends: what the worker streams to it stays staged, its messages wait, and the credit
// that it gave for streams from there is on its way when the connection is lost.
func (p *planes) clogged(ctx context.Context) error {
	n, err := started(plane.Options{})
	if err != nil {
		return err
	}
	defer n.Close()
	way, err := newWay(n.PeerInfo())
	if err != nil {
		return err
	}
	defer way.cut()
	if err := errors.Join(p.worker.Register(way.info), n.Register(p.worker.PeerInfo())); err != nil {
		return err
	}
	to, err := n.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	s, err := p.worker.Attach(ctx, to.Handle())
	if err != nil {
		return err
	}
	defer s.Close()

	ctx, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	var wg sync.WaitGroup
	defer wg.Wait()
	pause(ctx, 200*time.Millisecond)
	way.stall()
	// What fills the way has credit with it.
	for range 12 {
		if err := p.credited(ctx, &wg, n); err != nil {
			return err
		}
		pause(ctx, 4*time.Millisecond)
		if err := p.worker.Messages().Fire(ctx, n.Worker(), "nobody", make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	wg.Go(func() {
		for p.worker.Messages().Fire(ctx, n.Worker(), "nobody", nil) == nil {
		}
	})
	large := make([]byte, 64<<10)
	for s.Send(ctx, large) == nil {
	}
	<-ctx.Done()
	return ctx.Err()
}

// credited streams a window of records from n to the worker, which then owes their credit.
func (p *planes) credited(ctx context.Context, wg *sync.WaitGroup, n *plane.Node) error {
	a, err := p.worker.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	ticket, err := a.Ticket(0)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	s, err := n.Open(a.Handle(), ticket)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	wg.Go(func() { _ = read(ctx, a, 0) })
	for range mux.DefaultWindow {
		err = errors.Join(err, s.Send(ctx, []byte("token")))
	}
	wg.Go(func() {
		<-ctx.Done()
		s.Close()
	})
	return err
}

// way passes on what comes for a node, until it is stalled.
type way struct {
	info wire.PeerInfo // of the node, reached by it

	l       net.Listener
	to      string
	stalled chan struct{}
	wg      sync.WaitGroup
	mu      sync.Mutex
	conns   []net.Conn
}

func newWay(to wire.PeerInfo) (*way, error) {
	list, err := endpoints(to)
	if err != nil {
		return nil, err
	}
	w := &way{stalled: make(chan struct{})}
	if w.to, err = tcpOf(to); err != nil {
		return nil, err
	}
	if w.l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	w.info = wire.PeerInfo{Instance: to.Instance, Address: wire.NewAddress(map[string][]byte{"tcp": at(list, w.l.Addr())})}
	w.wg.Go(w.accept)
	return w, nil
}

// at is the entry of endpoints with another port.
func at(list []wire.Endpoint, a net.Addr) []byte {
	moved := append([]wire.Endpoint{}, list...)
	for i := range moved {
		moved[i].IP, moved[i].Port = netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(a.(*net.TCPAddr).Port)
	}
	return wire.AppendEndpoints(nil, moved)
}

func (w *way) accept() {
	for {
		in, err := w.l.Accept()
		if err != nil {
			return
		}
		_ = in.(*net.TCPConn).SetReadBuffer(16 << 10)
		out, err := net.Dial("tcp", w.to)
		if err != nil {
			in.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, in, out)
		w.mu.Unlock()
		w.wg.Go(func() { _, _ = io.Copy(in, out) })
		w.wg.Go(func() {
			b := make([]byte, 16<<10)
			for {
				n, err := in.Read(b)
				select {
				case <-w.stalled:
					return
				default:
				}
				if err != nil {
					return
				}
				if _, err := out.Write(b[:n]); err != nil {
					return
				}
			}
		})
	}
}

func (w *way) stall() { close(w.stalled) }

func (w *way) cut() {
	w.l.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
}

// bare is a peer that knows the protocol of messages alone.
func bare(t *testing.T) *messenger.Messenger {
	t.Helper()
	m, err := messenger.New(messenger.Options{Listen: loopback})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// withoutMux streams over connections of their own: from the worker to a consumer that
// offers nothing else, and to an anchor that nobody reads.
func (p *planes) withoutMux(t *testing.T, over func(time.Duration, func(context.Context) error)) {
	sink, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		sink.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := sink.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			})
		}
	})
	old := bare(t)
	list, err := endpoints(old.PeerInfo())
	if err != nil {
		t.Fatal(err)
	}
	old.AddAddress(wire.KeyTCPStream, at(list, sink.Addr()))
	old.Handle(wire.HandlerAttach, func(context.Context, messenger.Message) ([]byte, error) {
		return wire.EncodeAttachAnswer(&wire.AttachAnswer{TransportKey: wire.KeyTCPStream, HeartbeatIntervalMS: 1000, RoutingSessionID: 1}, false), nil
	})
	known(t, p.worker, old.PeerInfo())
	known(t, old, p.frontend.PeerInfo())
	over(300*time.Millisecond, func(ctx context.Context) error {
		s, err := p.worker.Attach(ctx, wire.Handle{Hi: old.Worker(), Lo: 1})
		if err != nil {
			return err
		}
		return feed(ctx, s, 20)
	})
	over(time.Second, func(ctx context.Context) error { return p.unread(ctx, old) })
}

// unread fills the buffer of an anchor from a connection of the stream's own.
func (p *planes) unread(ctx context.Context, from *messenger.Messenger) error {
	a, err := p.frontend.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	defer a.Close()
	body, err := json.Marshal(wire.AttachRequest{Handle: a.Handle(), SessionID: 1, TransportKeys: []string{wire.KeyTCPStream}})
	if err != nil {
		return err
	}
	reply, err := from.Call(ctx, p.frontend.Worker(), wire.HandlerAttach, body)
	if err != nil {
		return err
	}
	answer, err := wire.ParseAttachAnswer(reply, false)
	if err != nil {
		return err
	}
	entries, err := p.frontend.PeerInfo().Address.Entries()
	if err != nil {
		return err
	}
	list, err := wire.ParseEndpoints(entries[wire.KeyTCPStream])
	if err != nil {
		return err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(list[0].IP, list[0].Port).String())
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(500 * time.Millisecond)) // by then its buffer is full
	if _, err := c.Write(wire.AppendHandshake(nil, a.Handle().Lo, answer.RoutingSessionID)); err != nil {
		return err
	}
	item := wire.AppendItemBytes(nil, bytes.Repeat([]byte("x"), 32<<10))
	frame := append(wire.AppendPreamble(nil, wire.Message, 0, len(item)), item...)
	for err == nil {
		_, err = c.Write(frame)
	}
	return err
}
