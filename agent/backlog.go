// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/velo-agent/velo-agent/bpf/ladder"
	"github.com/velo-agent/velo-agent/bpf/sockqueue"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// backlog attaches the probe of every received packet only while some send leaves
// data behind.
type backlog struct {
	hold    *ladder.Hold
	refused bool
	count   uint64
	last    time.Time
	ever    *diagnosis.Coverage // how it was seen, once there was one
}

func (b *backlog) close() error {
	if b.hold == nil {
		return nil
	}
	err := b.hold.Close()
	b.hold = nil
	return err
}

// followBacklog reports whether data was left behind within the last second.
func (s *Session) followBacklog() bool {
	n := s.stirred().Backlogged
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	b := &s.backlog
	switch {
	case n != b.count:
		b.count, b.last = n, time.Now()
		if b.hold == nil && !b.refused {
			sig := sockqueue.LeftLater(s.maps)
			b.hold = ladder.Climb(sig, s.opts.Only[sig.Name])
			b.refused = !b.hold.Held()
			c := coverageOf(b.hold, "when data left that a send had left behind: known late, at the socket's next event")
			b.ever = &c
		}
	case b.hold != nil && time.Since(b.last) > backlogQuiet:
		if err := b.close(); err != nil {
			s.opts.Log.Warn("detaching left_later", "error", err)
		}
	}
	return time.Since(b.last) < time.Second
}
