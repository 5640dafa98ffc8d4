// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"fmt"
	"time"
)

// Outcome is one interval that ended with a write: TTFT with the first content, or
// the gap before a later record.
type Outcome struct {
	Kind TraceKind
	// FirstWrite is the time from the last request byte to the first response
	// write, set where this write is the first.
	FirstWrite time.Duration
	Pos        uint64 // position after the write's last byte
	Exchange   uint32
	Begin, End time.Duration
	Breakdown
}

// Options say which signals stood behind the steps.
type Options struct {
	// NoSched: who was woken is not known, so the way from arrival to read
	// cannot be split and is Unexplained.
	NoSched bool
}

// maxWaiting is how many writes of one connection are told apart while none has
// left (WRITES in bpf/include/conn.h).
const maxWaiting = 4

type phase int

const (
	phaseUnknown phase = iota
	phaseIdle
	phaseRequest
	phaseResponse
)

type write struct {
	start          time.Duration
	end            uint32
	class          WriteClass
	first, content bool
	joined         bool // several writes, as one
}

// machine is the state of one connection, as struct conn in the kernel.
type machine struct {
	opts                                Options
	phase                               phase
	exchange                            uint32
	accepted                            time.Duration
	firstArrived, lastArrived           time.Duration
	read, readArrived, ran, handed      time.Duration
	nextRan, nextHanded                 time.Duration
	firstArrivedPos, arrivedPos         uint32
	readPos, requestEnd                 uint32
	unseenRead, contentBegun, gapsValid bool
	prevLeft                            time.Duration
	ttftBegin                           time.Duration
	ttft                                [NumStages]time.Duration // accept_wait to reader, and unexplained
	waiting                             []write
	out                                 []Outcome
	impossible                          error // the first impossible time
}

// Replay computes the intervals that steps, in the order in which they were
// recorded, tell of. It gives what the kernel's counted tier gives for the same
// steps. Positions are compared as 32-bit numbers, so a connection's position may
// wrap. A step of no known kind is an error (ErrStep) and ends the replay. A first
// write or first content that left before it began has no outcome; the rest is
// replayed all the same and the first such error (ErrTime) comes with it.
func Replay(steps []Step, opts Options) ([]Outcome, error) {
	m := &machine{opts: opts}
	for i, s := range steps {
		if err := m.step(s); err != nil {
			return m.out, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return m.out, m.impossible
}

func before(a, b uint32) bool { return int32(a-b) < 0 }

func laterBy(t, than time.Duration) time.Duration { return max(0, t-than) }

func (m *machine) step(s Step) error {
	pos := uint32(s.Pos)
	switch s.Kind {
	case Arrived:
		if pos == m.arrivedPos {
			return nil
		}
		if m.readPos == m.arrivedPos {
			m.firstArrived, m.firstArrivedPos = s.Time, pos
		}
		m.lastArrived, m.arrivedPos = s.Time, pos
	case Ran:
		m.nextRan = s.Time
	case Handed:
		m.nextHanded = s.Time
	case Read:
		m.onRead(s, pos)
	case Send:
		m.onSend(s, pos)
	case Cut:
		m.onCut(pos, s.Class != 0)
	case Sent, Left:
		m.onLeft(pos, s.Time)
	case Established:
		m.phase = phaseIdle
	case Accepted:
		m.accepted = s.Time
	default:
		return fmt.Errorf("%w: kind %d", ErrStep, s.Kind)
	}
	return nil
}

func (m *machine) onRead(s Step, pos uint32) {
	if m.phase != phaseRequest && (m.phase != phaseResponse || before(m.requestEnd, pos)) {
		m.phase = phaseRequest
		m.exchange++
	}
	m.readArrived = m.firstArrived
	if pos == m.arrivedPos || before(m.firstArrivedPos, pos) {
		m.readArrived = m.lastArrived
	}
	m.read, m.readPos = s.Time, pos
	m.unseenRead = s.Class == 1
	m.ran, m.handed = m.nextRan, m.nextHanded
	m.nextRan, m.nextHanded = 0, 0
}

func (m *machine) onSend(s Step, pos uint32) {
	w := write{start: s.Time, end: pos, class: s.Class}
	if m.phase == phaseRequest && s.Class != Interim {
		m.phase = phaseResponse
		m.requestEnd = m.arrivedPos
		m.contentBegun, m.gapsValid = false, false
		m.fixTTFT()
		w.first = true
	}
	if m.phase == phaseResponse && s.Class == Content && !m.contentBegun {
		m.contentBegun = true
		w.content = true
	}
	if len(m.waiting) >= maxWaiting {
		m.waiting[len(m.waiting)-1].end = pos
		m.waiting[len(m.waiting)-1].joined = true
		return
	}
	m.waiting = append(m.waiting, w)
}

func (m *machine) onCut(pos uint32, some bool) {
	n := len(m.waiting)
	if n == 0 || !before(pos, m.waiting[n-1].end) {
		return
	}
	w := &m.waiting[n-1]
	if some || w.joined {
		w.end = pos
		return
	}
	if w.first {
		m.phase = phaseRequest
	}
	if w.content {
		m.contentBegun = false
	}
	m.waiting = m.waiting[:n-1]
}

// fixTTFT partitions the way of the request's last byte up to its read.
func (m *machine) fixTTFT() {
	at := m.readArrived
	m.ttftBegin = at
	m.ttft = [NumStages]time.Duration{}
	m.ttft[AcceptWait] = laterBy(m.accepted, at)
	at += m.ttft[AcceptWait]
	m.ttft[WakeToRun] = laterBy(m.ran, at)
	at += m.ttft[WakeToRun]
	m.ttft[Reader] = laterBy(m.read, at)
	if m.handed > 0 {
		m.ttft[RuntimeHandoff] = laterBy(m.read, max(m.handed, at))
		m.ttft[Reader] -= m.ttft[RuntimeHandoff]
	}
	if m.opts.NoSched || m.unseenRead {
		m.ttft[Unexplained], m.ttft[Reader] = m.ttft[Reader], 0
	}
}

func (m *machine) onLeft(pos uint32, t time.Duration) {
	for len(m.waiting) > 0 && !before(pos, m.waiting[0].end) {
		w := m.waiting[0]
		m.waiting = m.waiting[1:]
		m.left(w, t)
	}
}

func (m *machine) left(w write, t time.Duration) {
	switch {
	case w.first || w.content:
		if o, ok := m.answered(w, t); ok {
			m.out = append(m.out, o)
		}
	case w.class == Content && m.gapsValid:
		m.out = append(m.out, m.gap(w, t))
	}
	if w.class == Content {
		m.prevLeft = t
		m.gapsValid = true
	}
}

// answered makes the outcome of the first response write, or of the first with
// content; Kind is 0 where there was no content yet.
func (m *machine) answered(w write, t time.Duration) (Outcome, bool) {
	if m.ttftBegin == 0 {
		return Outcome{}, false // the request arrived before it could be seen
	}
	o := Outcome{Pos: uint64(w.end), Exchange: m.exchange, Begin: m.ttftBegin, End: t}
	total := t - m.ttftBegin
	var sum time.Duration
	for _, d := range m.ttft {
		sum += d
	}
	if w.start < m.ttftBegin || t < w.start || sum > total {
		m.impossible = cmp.Or(m.impossible, fmt.Errorf("%w: the request was read by %v, the answer began at %v and left at %v",
			ErrTime, m.ttftBegin+sum, w.start, t))
		return Outcome{}, false
	}
	if w.first {
		o.FirstWrite = total
	}
	if !w.content {
		return o, true
	}
	o.Kind = TraceTTFT
	o.Total = total
	o.Stages = m.ttft
	o.Stages[Engine] = laterBy(w.start, m.ttftBegin+sum)
	o.Stages[SendQueue] = total - sum - o.Stages[Engine]
	return o, true
}

func (m *machine) gap(w write, t time.Duration) Outcome {
	o := Outcome{Kind: TraceGap, Pos: uint64(w.end), Exchange: m.exchange, Begin: m.prevLeft, End: t}
	o.Total = laterBy(t, m.prevLeft)
	o.Stages[Engine] = min(laterBy(w.start, m.prevLeft), o.Total)
	o.Stages[SendQueue] = o.Total - o.Stages[Engine]
	return o
}
