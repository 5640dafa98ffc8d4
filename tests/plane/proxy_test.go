// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// proxy stands before a node's listener. It sees whole frames, and can do to them, and to
// the connections, what a network and a broken peer can.
type proxy struct {
	l  net.Listener
	to netip.AddrPort
	// alter says what is written for a frame towards the listener; nil: the frame.
	alter atomic.Pointer[func(f *passing) []step]
	open  sync.RWMutex // held for writing while nothing may pass

	mu    sync.Mutex
	lines map[*crossing]bool
	wg    sync.WaitGroup
	over  bool // guarded by mu: the test is
}

// passing is a frame on its way. Its parts are its own.
type passing struct {
	kind            wire.FrameType
	header, payload []byte
	raw             []byte // all of it
}

// step is bytes to write, or what is done to the connection.
type step struct {
	write []byte
	reset bool          // both sides at once
	shut  bool          // the way towards the listener
	wait  time.Duration // before
}

// batch says whether it carries records.
func (f *passing) batch() bool {
	h, err := wire.ParseMessageHeader(f.header)
	return f.kind == wire.Message && err == nil && string(h.Handler) == wire.BatchHandler
}

// with is the frame with another payload, which its preamble fits.
func (f *passing) with(payload []byte) []byte {
	b := wire.AppendPreamble(nil, f.kind, len(f.header), len(payload))
	return append(append(b, f.header...), payload...)
}

// records are those of a batch.
func (f *passing) records(t testing.TB) (h wire.BatchHeader, list []wire.Record) {
	var records wire.Records
	h, err := records.Reset(f.payload)
	if err != nil {
		t.Error(err)
	}
	for r := (wire.Record{}); records.Next(&r); {
		list = append(list, r)
	}
	return h, list
}

// batchOf is the payload of a batch.
func batchOf(h wire.BatchHeader, list ...wire.Record) []byte {
	h.Count = uint16(len(list))
	b := wire.AppendBatchHeader(nil, h)
	for i := range list {
		b = wire.AppendRecord(b, &list[i])
	}
	return b
}

// crossing is a connection through the proxy.
type crossing struct{ near, far *net.TCPConn }

func (x *crossing) close(reset bool) {
	for _, c := range []*net.TCPConn{x.near, x.far} {
		if reset {
			_ = c.SetLinger(0)
		}
		c.Close()
	}
}

func newProxy(t testing.TB, to netip.AddrPort) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to, lines: map[*crossing]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.over = true // one that is being accepted is not known to reset yet
		p.mu.Unlock()
		p.refuse()
		p.reset()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) address() netip.AddrPort { return p.l.Addr().(*net.TCPAddr).AddrPort() }

func (p *proxy) accept() {
	for {
		near, err := p.l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.to.String())
		if err != nil {
			near.Close()
			continue
		}
		x := &crossing{near.(*net.TCPConn), far.(*net.TCPConn)}
		p.mu.Lock()
		p.lines[x] = true
		over := p.over
		p.mu.Unlock()
		if over {
			x.close(true)
		}
		var both sync.WaitGroup
		both.Go(func() { p.pump(x, x.far, x.near, true) })
		both.Go(func() { p.pump(x, x.near, x.far, false) })
		p.wg.Go(func() {
			both.Wait()
			x.close(false)
			p.mu.Lock()
			delete(p.lines, x)
			p.mu.Unlock()
		})
	}
}

// pump moves frames; alterable: in the direction of the listener.
func (p *proxy) pump(x *crossing, dst, src *net.TCPConn, alterable bool) {
	defer func() { _ = dst.CloseWrite() }()
	r := bufio.NewReaderSize(src, 128<<10)
	for {
		f, err := next(r)
		if err != nil {
			return
		}
		steps := []step{{write: f.raw}}
		if alter := p.alter.Load(); alter != nil && alterable {
			steps = (*alter)(f)
		}
		for _, s := range steps {
			time.Sleep(s.wait)
			p.open.RLock()
			_, err := dst.Write(s.write)
			p.open.RUnlock()
			switch {
			case s.reset:
				x.close(true)
				return
			case s.shut || err != nil:
				return
			}
		}
	}
}

// next reads a frame.
func next(r *bufio.Reader) (*passing, error) {
	head, err := r.Peek(wire.PreambleLen)
	if err != nil {
		return nil, err
	}
	pre, err := wire.ParsePreamble(head)
	if err != nil {
		return nil, err
	}
	f := &passing{kind: pre.Type, raw: make([]byte, wire.PreambleLen+pre.Header+pre.Payload)}
	_, err = io.ReadFull(r, f.raw)
	f.header = f.raw[wire.PreambleLen : wire.PreambleLen+pre.Header]
	f.payload = f.raw[wire.PreambleLen+pre.Header:]
	return f, err
}

// do alters frames from now on.
func (p *proxy) do(f func(f *passing) []step) { p.alter.Store(&f) }

// pass lets frames pass as they are.
func (p *proxy) pass() { p.alter.Store(nil) }

// once does something to the next batch that is long enough to matter, and says when it did.
func (p *proxy) once(f func(f *passing) []step) (done chan struct{}) {
	done = make(chan struct{})
	var told atomic.Bool
	p.do(func(x *passing) []step {
		if !x.batch() || len(x.payload) < 1000 || told.Swap(true) {
			return []step{{write: x.raw}}
		}
		defer close(done)
		return f(x)
	})
	return done
}

// reset ends all connections at once.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.lines {
		x.close(true)
	}
}

// refuse takes no connection any more.
func (p *proxy) refuse() { p.l.Close() }

// stall has nothing pass until f is called, which may be done more than once.
func (p *proxy) stall(t testing.TB) (resume func()) {
	p.open.Lock()
	resume = sync.OnceFunc(p.open.Unlock)
	t.Cleanup(resume)
	return resume
}

// scene is two nodes that reach each other through proxies.
type scene struct {
	producer, consumer *site
	there, back        *proxy // before the consumer, before the producer
}

// silence is how long a peer may say nothing in these tests.
const silence = time.Second

func newScene(t testing.TB, o plane.Options) *scene {
	t.Helper()
	o.Mux.Silence = silence
	o.Heartbeat = 200 * time.Millisecond
	s := &scene{}
	instances := [2]wire.InstanceID{wire.NewInstanceID(), wire.NewInstanceID()}
	o.Instance = instances[0]
	s.producer = start(t, o)
	o.Instance = instances[1]
	s.consumer = start(t, o)
	s.there = newProxy(t, listensAt(t, s.consumer.PeerInfo()))
	s.back = newProxy(t, listensAt(t, s.producer.PeerInfo()))
	register(t, s.producer, at(instances[1], s.there.address()))
	register(t, s.consumer, at(instances[0], s.back.address()))
	return s
}

// cancels says whether a consumer ends a stream in a batch.
func cancels(list []wire.Record) bool {
	return slices.ContainsFunc(list, func(r wire.Record) bool {
		return r.Type == wire.LifecycleSlot || r.Type == wire.CloseSlot && !wire.ParseClose(r.Body).FromOwner()
	})
}
