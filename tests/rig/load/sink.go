// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
)

// Sink keeps account of what a consumer receives: every record of every stream, once, in
// order and with the right content, and the end of each.
type Sink struct {
	Setup   Histogram // from the request for a stream to its first record
	Latency Histogram // from the hand-in of each other record, when paced
	Cycle   Histogram // from the request for a stream to its end
	// OnEnd, if not nil, is told of each stream that ended well.
	OnEnd func()

	size    int
	records uint64
	stamped bool

	streams        []Stream
	started, ended atomic.Int64
	endedAt        atomic.Int64
	ready, done    chan struct{}
	failed         chan struct{}
	once           sync.Once
	fault          error
}

// NewSink expects streams of so many records each.
func NewSink(streams, records, size int, stamped bool) *Sink {
	s := &Sink{
		size: size, records: uint64(records), stamped: stamped, streams: make([]Stream, streams),
		ready: make(chan struct{}), done: make(chan struct{}), failed: make(chan struct{}),
	}
	for i := range s.streams {
		s.streams[i].sink, s.streams[i].number = s, uint64(i)
	}
	return s
}

// Fail ends the repetition: a carrier failed, or what it brought is wrong.
func (s *Sink) Fail(err error) {
	s.once.Do(func() {
		s.fault = err
		close(s.failed)
	})
}

// Ready waits until every stream has its first record.
func (s *Sink) Ready() error { return s.Await(s.ready) }

// Done waits until every stream has ended, and returns when the last did.
func (s *Sink) Done() (int64, error) {
	err := s.Await(s.done)
	return s.endedAt.Load(), err
}

// Await waits for c, or for the fault of the repetition.
func (s *Sink) Await(c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-s.failed:
		return s.fault
	}
}

// Stream returns the account of a stream.
func (s *Sink) Stream(n int) *Stream { return &s.streams[n] }

// Named returns the account of the stream that a first record belongs to, where a
// connection says in no other way what it carries; nil and a failed sink if there is none.
func (s *Sink) Named(record []byte) *Stream {
	if len(record) >= header {
		if n := binary.BigEndian.Uint64(record); n < uint64(len(s.streams)) {
			return &s.streams[n]
		}
	}
	s.Fail(fmt.Errorf("a stream begins with a record of %d bytes that names none", len(record)))
	return nil
}

// Stream is the account of one stream. Take and End are one goroutine's at a time.
type Stream struct {
	sink         *Sink
	number, next uint64
	requested    atomic.Int64
}

// Request notes that the stream is asked for.
func (s *Stream) Request() { s.requested.Store(Now()) }

// Take checks the next record.
func (s *Stream) Take(record []byte) {
	k := s.sink
	handed, err := check(record, k.size, s.number, s.next, k.stamped)
	if err != nil {
		k.Fail(err)
		return
	}
	switch {
	case s.next == 0:
		k.Setup.Add(Now() - s.requested.Load())
		if k.started.Add(1) == int64(len(k.streams)) {
			close(k.ready)
		}
	case k.stamped:
		k.Latency.Add(Now() - handed)
	}
	s.next++
}

// End takes the end of the stream; nil: it is complete.
func (s *Stream) End(err error) {
	k := s.sink
	switch {
	case err != nil:
		k.Fail(fmt.Errorf("stream %d after %d records: %w", s.number, s.next, err))
		return
	case s.next != k.records:
		k.Fail(fmt.Errorf("stream %d ended after %d of %d records", s.number, s.next, k.records))
		return
	}
	now := Now()
	k.Cycle.Add(now - s.requested.Load())
	if k.ended.Add(1) == int64(len(k.streams)) {
		k.endedAt.Store(now)
		close(k.done)
	}
	if k.OnEnd != nil {
		k.OnEnd()
	}
}
