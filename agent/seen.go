// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/sockqueue"
	"github.com/velo-agent/velo-agent/diagnosis"
)

const (
	slowestKept   = 5
	streamsKept   = 4096 // streams of the window that are told apart
	tiersDisagree = 2 * time.Microsecond
)

// seen is what user space has learned while the session runs.
type seen struct {
	mu    sync.Mutex
	marks marks
	lost  map[string]uint64 // in user space, by place and reason

	streams  map[streamKey]*stream
	sockets  uint64              // found by the first walk
	clocks   [2]sockqueue.Clocks // the first and the newest, for the kernel's tick
	told     map[int]told        // of each target, by index
	walked   walked
	feedback feedback
	opts     attribution.Options
}

type streamKey struct {
	cookie   uint64
	exchange uint32
}

type stream struct {
	port      int
	ttft, gap *attribution.Trace
}

type feedback struct {
	exchanges uint64
	last      bpf.Tracing
}

func newSeen() *seen {
	return &seen{
		marks: marks{tids: map[int]bool{}, roles: map[roleKey]int{}},
		lost:  map[string]uint64{}, streams: map[streamKey]*stream{}, told: map[int]told{},
	}
}

// socket takes one line of the marking walk.
func (n *seen) socket(x sockqueue.Socket) {
	n.tick(x.Clocks)
	if x.State == sockqueue.Established && x.Marked {
		n.sockets++
	}
}

// tick remembers pairs of the kernel's two clocks: how long a jiffy is, is not
// told anywhere that a program may read.
func (n *seen) tick(at sockqueue.Clocks) {
	if n.clocks[0].Ktime == 0 {
		n.clocks[0] = at
	}
	n.clocks[1] = at
}

// jiffy returns the length of the kernel's tick, or 0 where the walks lay too
// close together to tell.
func (n *seen) jiffy() time.Duration {
	a, b := n.clocks[0], n.clocks[1]
	ticks := b.Jiffies - a.Jiffies
	if ticks < 100 {
		return 0
	}
	exact := time.Duration(b.Ktime-a.Ktime) / time.Duration(ticks)
	for _, hz := range []time.Duration{100, 250, 300, 1000} {
		d := time.Second / hz
		if diff := (exact - d).Abs(); diff < d/10 {
			return d
		}
	}
	return exact
}

// drain takes the records that have come, and returns how many.
func (s *Session) drain() int {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	exchanges, n := 0, 0
	err := s.records.Drain(func(t *attribution.Trace) {
		s.trace(t)
		n++
		if t.Kind == attribution.TraceTTFT {
			exchanges++
		}
	}, func(err error) {
		s.seen.lost["records/undecodable"]++
		s.opts.Log.Warn("dropping a record", "error", err)
	})
	if err != nil {
		s.opts.Log.Warn("draining the records", "error", err)
	}
	s.brake(exchanges)
	return n
}

// brake cuts what is traced at once where one drain brought far more than its
// share of tracedPerSecond; feedBack, which comes every second, sets it right.
func (s *Session) brake(exchanges int) {
	const share = int(tracedPerSecond * drainEvery / time.Second)
	f := &s.seen.feedback
	if exchanges < 8*share || s.opts.TraceAll {
		return
	}
	next := f.last
	next.Sample = max(next.Sample, 1) * uint32(exchanges/share)
	s.setTracing(next)
}

func (s *Session) setTracing(t bpf.Tracing) {
	if t == s.seen.feedback.last {
		return
	}
	if err := s.maps.Trace(t); err != nil {
		s.opts.Log.Warn("setting what is traced", "error", err)
		return
	}
	s.seen.feedback.last = t
}

// trace keeps a record if its stream is among the slow ones, and holds both tiers
// to the same answer.
func (s *Session) trace(t *attribution.Trace) {
	n := s.seen
	b, err := t.Breakdown(n.opts)
	switch {
	case err != nil:
		n.lost["attribution/steps_truncated"]++
	case !agree(b, t.Counted):
		n.lost["attribution/tiers_disagree"]++
		s.opts.Log.Debug("the tiers disagree", "counted", t.Counted, "traced", b)
	}
	if s.opts.OnTrace != nil {
		s.opts.OnTrace(t)
	}
	key := streamKey{t.Cookie, t.Exchange}
	st := n.streams[key]
	if st == nil {
		if len(n.streams) >= streamsKept {
			n.forgetFast()
		}
		st = &stream{port: t.Port}
		n.streams[key] = st
	}
	if t.Kind == attribution.TraceTTFT {
		st.ttft = t
	} else if st.gap == nil || t.Counted.Total > st.gap.Counted.Total {
		st.gap = t
	}
}

func agree(a, b attribution.Breakdown) bool {
	if (a.Total - b.Total).Abs() > tiersDisagree {
		return false
	}
	for s := range a.Stages {
		if (a.Stages[s] - b.Stages[s]).Abs() > tiersDisagree {
			return false
		}
	}
	return true
}

func (st *stream) worst() time.Duration {
	var w time.Duration
	if st.ttft != nil {
		w = st.ttft.Counted.Total
	}
	if st.gap != nil {
		w = max(w, st.gap.Counted.Total)
	}
	return w
}

// forgetFast drops the faster half of the streams.
func (n *seen) forgetFast() {
	worst := make([]time.Duration, 0, len(n.streams))
	for _, st := range n.streams {
		worst = append(worst, st.worst())
	}
	slices.Sort(worst)
	limit := worst[len(worst)/2]
	for k, st := range n.streams {
		if st.worst() <= limit {
			delete(n.streams, k)
		}
	}
}

// slowest returns the worst few streams, those of the worst TTFT and of the worst gap.
func (n *seen) slowest(list *targets) []diagnosis.Stream {
	type keyed struct {
		streamKey
		*stream
	}
	all := make([]keyed, 0, len(n.streams))
	for k, st := range n.streams {
		all = append(all, keyed{k, st})
	}
	slices.SortFunc(all, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(b.worst(), a.worst()), cmp.Compare(a.cookie, b.cookie), cmp.Compare(a.exchange, b.exchange))
	})
	out := []diagnosis.Stream{}
	for _, k := range all[:min(slowestKept, len(all))] {
		t := list.at(k.port)
		if t == nil {
			continue // its port was given up meanwhile
		}
		d := diagnosis.Stream{ID: fmt.Sprintf("%x.%d", k.cookie, k.exchange), Port: t.Port, NetNS: t.NetNS}
		if k.ttft != nil {
			d.TTFT, d.TTFTStages = k.ttft.Counted.Total, named(t.told(k.ttft.Counted))
		}
		if k.gap != nil {
			d.WorstGap, d.GapStages = k.gap.Counted.Total, named(k.gap.Counted)
		}
		out = append(out, d)
	}
	return out
}

func named(b attribution.Breakdown) map[string]time.Duration {
	m := map[string]time.Duration{}
	for s, d := range b.Stages {
		if d > 0 {
			m[attribution.Stage(s).String()] = d
		}
	}
	return m
}

// feedBack sets what is traced from what came since it was last asked, a second ago
// or more: gaps beyond the live p99, and at most so many exchanges a second.
func (s *Session) feedBack(since time.Duration) {
	if s.opts.NoTrace {
		return
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	f := &s.seen.feedback
	next := s.opts.tracing()
	var exchanges uint64
	var gaps attribution.Histogram
	for _, t := range s.targets.list {
		p, err := s.maps.Port(t.index)
		if err != nil {
			s.opts.Log.Warn("reading figures", "error", err)
			return
		}
		exchanges += p.Exchanges
		gaps.Merge(&p.Gap)
	}
	rate := float64(exchanges-min(exchanges, f.exchanges)) / since.Seconds()
	if rate > tracedPerSecond && !s.opts.TraceAll {
		next.Sample = uint32(rate / tracedPerSecond)
	}
	f.exchanges = exchanges
	if gaps.Count() > 0 {
		next.Gap = max(gaps.Quantile(0.99), leastGapThreshold)
	}
	s.setTracing(next)
}
