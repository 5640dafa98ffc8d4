// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// A stream without a mux has a connection of its own, dialled by its producer: 16 bytes
// that name it, then frames; nothing comes back. It serves peers that have no mux in common
// with us, and costs a goroutine and a socket a stream.

const (
	handshakeTimeout = 20 * time.Second
	dialTimeout      = 5 * time.Second
	mostHalfOpen     = 1024
	outBuffer        = 256 << 10
)

// streamServer takes those connections.
type streamServer struct {
	n        *Node
	listener net.Listener
	wg       sync.WaitGroup
	halfOpen chan struct{}

	mu       sync.Mutex
	expected map[uint64]expectation // by session
	conns    map[*inStream]bool
	closed   bool
}

type expectation struct {
	a      *Anchor
	sender uint64 // of an MPSC anchor
}

// serveStreams listens for them; nil: it serves none.
func (n *Node) serveStreams() (*streamServer, error) {
	at, err := n.streamsAt()
	if err != nil {
		return nil, fmt.Errorf("listening for streams: %w", err)
	}
	if at.Address == "" {
		return nil, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", at.Address)
	if err != nil {
		return nil, fmt.Errorf("listening for streams: %w", err)
	}
	list, err := at.Endpoints(l.Addr())
	if err != nil {
		return nil, fmt.Errorf("listening for streams: %w", errors.Join(err, l.Close()))
	}
	n.messages.AddAddress(wire.KeyTCPStream, wire.AppendEndpoints(nil, list))
	s := &streamServer{n: n, listener: l, halfOpen: make(chan struct{}, mostHalfOpen), expected: map[uint64]expectation{}, conns: map[*inStream]bool{}}
	s.wg.Go(s.accept)
	return s, nil
}

// streamsAt is where to listen for streams; without an address nowhere.
func (n *Node) streamsAt() (messenger.Listen, error) {
	at, encrypted := n.opts.Streams, n.opts.Transport.TLS != nil
	i := slices.IndexFunc(n.opts.Listen, func(l messenger.Listen) bool { return l.Network == "tcp" })
	switch {
	case at != (messenger.Listen{}):
	case i < 0, encrypted, n.opts.Listen[i].Advertise != "":
		return at, nil
	default: // where messages reach us, streams do
		host, _, err := net.SplitHostPort(n.opts.Listen[i].Address)
		return messenger.Listen{Network: "tcp", Address: net.JoinHostPort(host, "0")}, err
	}
	bound, err := net.ResolveTCPAddr("tcp", at.Address)
	switch {
	case err != nil:
	case at.Network != "tcp" || at.Address == "":
		err = fmt.Errorf("the option Streams is %q on %q: give it an address on tcp", at.Address, at.Network)
	case encrypted:
		err = errors.New("they know no TLS: leave the option Streams empty")
	case !bound.IP.IsLoopback() && !n.opts.Transport.Insecure:
		err = fmt.Errorf("%w: listen on a loopback address, not on %s, or allow it with insecure", transport.ErrInsecure, at.Address)
	case i >= 0 && n.opts.Listen[i].Advertise != "" && at.Advertise == "":
		err = errors.New("the node has an Advertise and they have none: give one to the option Streams, or leave it empty")
	}
	return at, err
}

// expect opens a session for a producer that will dial.
func (s *streamServer) expect(a *Anchor, sender uint64) (session uint64) {
	session = secret()
	s.mu.Lock()
	s.expected[session] = expectation{a, sender}
	s.mu.Unlock()
	time.AfterFunc(s.n.opts.AcceptWindow, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.expected, session)
	})
	return session
}

func (s *streamServer) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.n.opts.Log.Warn("accepting a stream", "error", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors, most likely
			continue
		}
		select {
		case s.halfOpen <- struct{}{}:
		default:
			c.Close()
			continue
		}
		in := &inStream{s: s, c: c}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[in] = true
		s.wg.Go(in.serve)
		s.mu.Unlock()
	}
}

func (s *streamServer) close() {
	s.mu.Lock()
	s.closed = true
	for in := range s.conns {
		in.close()
	}
	s.mu.Unlock()
	s.listener.Close()
	s.wg.Wait()
}

// inStream is one connection, read by a goroutine of its own.
type inStream struct {
	s *streamServer
	c net.Conn
}

func (in *inStream) close() { in.c.Close() }

func (in *inStream) serve() {
	defer func() {
		in.c.Close()
		in.s.mu.Lock()
		delete(in.s.conns, in)
		in.s.mu.Unlock()
	}()
	e, ok := in.greeted()
	<-in.s.halfOpen
	if !ok {
		return // velo says nothing either
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := e.a.beginStream(in, e.sender, cancel)
	if l == nil {
		return
	}
	if err := in.read(ctx, e.a, l); err != nil {
		_ = l.Finish(wire.FrameDropped) // ended meanwhile: it is known
	}
}

// greeted reads who the connection is for.
func (in *inStream) greeted() (expectation, bool) {
	_ = in.c.SetReadDeadline(time.Now().Add(handshakeTimeout))
	var b [wire.HandshakeLen]byte
	if _, err := io.ReadFull(in.c, b[:]); err != nil {
		return expectation{}, false
	}
	anchor, session := wire.ParseHandshake(b)
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	e, ok := in.s.expected[session]
	if !ok || e.a.id != anchor {
		return expectation{}, false
	}
	delete(in.s.expected, session)
	return e, true
}

// beginStream joins the connection to the anchor; nil: it is gone.
func (a *Anchor) beginStream(in *inStream, sender uint64, end func()) *mux.Local {
	hooks := mux.Hooks{End: func(error) { end(); in.c.Close() }}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mpsc() {
		src := a.source(sender)
		if src == nil {
			return nil
		}
		src.local = a.n.mux.NewLocal(&a.inbox, sender, hooks)
		return src.local
	}
	if a.state != attached {
		return nil
	}
	o := a.origin
	o.claimed = true
	o.local = a.n.mux.NewLocal(&a.inbox, nil, hooks)
	a.n.deadlines.clear(a)
	return o.local
}

// read moves frames into the inbox until the terminal; an error is any other end.
func (in *inStream) read(ctx context.Context, a *Anchor, l *mux.Local) error {
	r := bufio.NewReaderSize(in.c, 16<<10)
	var head [wire.PreambleLen]byte
	var frame []byte
	for {
		_ = in.c.SetReadDeadline(time.Now().Add(3 * a.opts.Heartbeat))
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		p, err := wire.ParsePreamble(head[:])
		if err != nil {
			return err
		}
		if _, err := r.Discard(p.Header); err != nil {
			return err
		}
		frame = slices.Grow(frame[:0], min(p.Payload, 64<<10))[:0]
		for len(frame) < p.Payload { // no more is allocated than came
			n := min(p.Payload-len(frame), 64<<10)
			frame = slices.Grow(frame, n)
			if _, err := io.ReadFull(r, frame[len(frame):len(frame)+n]); err != nil {
				return err
			}
			frame = frame[:len(frame)+n]
		}
		switch {
		case wire.IsTerminal(frame):
			return l.Finish(frame)
		case string(frame) == string(wire.FrameHeartbeat):
			continue
		}
		for err = l.Frame(frame); errors.Is(err, ErrWouldBlock); err = l.Frame(frame) {
			in.s.n.metrics.ServerFull.Inc()
			if err := l.Wait(ctx); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// dialStream begins such a stream as its producer.
func (n *Node) dialStream(ctx context.Context, s *Sender, h wire.Handle, answer *wire.AttachAnswer) error {
	info, ok := n.messages.Peer(h.Hi)
	if !ok {
		return fmt.Errorf("%w: worker %d is not registered", ErrRefused, h.Hi)
	}
	entries, err := info.Address.Entries()
	if err != nil {
		return err
	}
	entry, ok := entries[wire.KeyTCPStream]
	if !ok {
		return fmt.Errorf("%w: the consumer's address has no %s; register its whole peer info", ErrRefused, wire.KeyTCPStream)
	}
	list, err := wire.ParseEndpoints(entry)
	if err != nil {
		return err
	}
	c, err := dialFirst(ctx, list)
	if err != nil {
		return err
	}
	if _, err := c.Write(wire.AppendHandshake(nil, h.Lo, answer.RoutingSessionID)); err != nil {
		return errors.Join(err, c.Close())
	}
	o := &outStream{n: n, c: c, end: s.onEnd, beat: time.Duration(answer.HeartbeatIntervalMS) * time.Millisecond, work: make(chan struct{}, 1), through: make(chan struct{})}
	s.carry(o, wire.KeyTCPStream)
	n.wg.Go(o.run)
	return nil
}

func dialFirst(ctx context.Context, list []wire.Endpoint) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	var errs []error
	for _, e := range list {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(e.IP.String(), strconv.Itoa(int(e.Port))))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// outStream is such a stream at its producer: a buffer, and a goroutine that writes it.
type outStream struct {
	n    *Node
	c    net.Conn
	end  func(error)
	beat time.Duration
	work chan struct{}

	through chan struct{} // closed when run ends, with lost set

	mu    sync.Mutex
	buf   []byte
	count int
	last  bool // the terminal is in the buffer
	err   error
	room  mux.Room
	lost  error // what ended it before the terminal was written
	sent  bool  // since the last beat
}

func (o *outStream) Item(b []byte) error {
	return o.put(wire.ItemBytesLen(len(b)), func(dst []byte) []byte { return wire.AppendItemBytes(dst, b) }, false)
}

func (o *outStream) Frame(frame []byte) error {
	return o.put(len(frame), func(dst []byte) []byte { return append(dst, frame...) }, false)
}

func (o *outStream) Finish(terminal []byte) error {
	return o.put(len(terminal), func(dst []byte) []byte { return append(dst, terminal...) }, true)
}

func (o *outStream) put(n int, f func([]byte) []byte, last bool) error {
	if wire.CheckFrame(0, n) != nil {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return o.err
	case !last && len(o.buf) >= outBuffer:
		o.room.Refuse()
		return ErrWouldBlock
	}
	o.buf = f(wire.AppendPreamble(o.buf, wire.Message, 0, n))
	o.count++
	o.sent = true
	if last {
		o.last, o.err = true, mux.ErrEnded
	}
	select {
	case o.work <- struct{}{}:
	default:
	}
	return nil
}

func (o *outStream) Wait(ctx context.Context) error { return o.room.Wait(ctx, &o.mu) }

// Retired is mux.Owner.Retired.
func (o *outStream) Retired(ctx context.Context) error {
	o.mu.Lock()
	ended := o.err
	o.mu.Unlock()
	switch {
	case ended == nil:
		return mux.ErrNotEnded
	case !errors.Is(ended, mux.ErrEnded):
		return ended
	}
	select {
	case <-o.through:
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.lost
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *outStream) Cancelled() { o.fail(ErrCancelled) }

// fail ends the stream from outside; its producer is told once.
func (o *outStream) fail(err error) {
	o.mu.Lock()
	first := o.err == nil
	if first {
		o.err = err
	}
	o.lost = err
	o.room.Again()
	o.mu.Unlock()
	o.c.Close()
	if first {
		o.end(err)
	}
}

func (o *outStream) run() {
	defer close(o.through)
	defer o.c.Close()
	gone := make(chan struct{})
	go func() { // nothing comes back: a read ends with the connection
		defer close(gone)
		var b [1]byte
		_, _ = o.c.Read(b[:])
	}()
	defer func() { <-gone }()
	defer o.c.Close()
	beat := time.NewTicker(max(o.beat, time.Millisecond))
	defer beat.Stop()
	var buf []byte
	for {
		select {
		case <-gone:
			o.fail(ErrPeerLost)
			return
		case <-beat.C:
			o.mu.Lock()
			idle := !o.sent
			o.sent = false
			o.mu.Unlock()
			if idle && o.Frame(wire.FrameHeartbeat) != nil {
				continue // the buffer is full, or it has ended
			}
		case <-o.work:
		}
		o.mu.Lock()
		buf, o.buf = o.buf, buf[:0]
		count, last := o.count, o.last
		o.count = 0
		o.room.Again()
		o.mu.Unlock()
		if len(buf) > 0 {
			if _, err := o.c.Write(buf); err != nil {
				o.fail(fmt.Errorf("%w: %w", ErrPeerLost, err))
				return
			}
			o.n.metrics.Flushes.Inc()
			o.n.metrics.Frames.Add(float64(count))
		}
		if last {
			return
		}
	}
}
