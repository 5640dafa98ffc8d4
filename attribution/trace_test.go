// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// recorder keeps the last 32 steps, as the kernel's does.
func recorder(l timeline) ([]Step, int) {
	lost := max(0, len(l)-32)
	return l[lost:], lost
}

func TestTraceBreakdown(t *testing.T) {
	exchange := timeline{}.established(0).accepted(0).request(10, 100).write(20, 21, 500, Content)
	many := slices.Clone(exchange)
	for i := range 20 {
		many = many.write(30+10*i, 30+10*i, uint32(600+100*i), Content)
	}
	slow := timeline{}.established(0).accepted(0)
	for i := range 20 {
		slow = slow.arrived(i, uint32(10*i+10)).read(i, uint32(10*i+10))
	}
	slow = slow.write(30, 30, 500, Content)
	ms := func(n int) time.Duration { return origin + time.Duration(n)*time.Millisecond }
	for _, c := range []struct {
		name  string
		steps timeline
		trace Trace
		total time.Duration
		err   error
	}{
		{"its TTFT", exchange, Trace{Kind: TraceTTFT, Pos: 500, Begin: ms(10)}, 11 * time.Millisecond, nil},
		{"a gap long after the beginning is gone", many, Trace{Kind: TraceGap, Pos: 2500, Begin: ms(210)}, 10 * time.Millisecond, nil},
		{"a TTFT whose beginning is gone", many, Trace{Kind: TraceTTFT, Pos: 500, Begin: ms(10)}, 0, ErrTruncated},
		{"a request in so many segments that the first are gone", slow, Trace{Kind: TraceTTFT, Pos: 500, Begin: ms(19)}, 11 * time.Millisecond, nil},
		{"another interval than the steps tell of", exchange, Trace{Kind: TraceGap, Pos: 500, Begin: ms(10)}, 0, ErrTruncated},
		{"a position of which only the low half is known", exchange, Trace{Kind: TraceTTFT, Pos: 7<<32 + 500, Begin: ms(10)}, 11 * time.Millisecond, nil},
		{"steps that cannot be", exchange.add(40, 99, 0, 0), Trace{Kind: TraceGap, Pos: 9, Begin: ms(10)}, 0, ErrStep},
		{"impossible times", timeline{}.request(10, 100).send(20, 500, Content).sent(19, 500), Trace{Kind: TraceTTFT, Pos: 500, Begin: ms(10)}, 0, ErrTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.trace.Steps, c.trace.Lost = recorder(c.steps)
			b, err := c.trace.Breakdown(Options{})
			if !errors.Is(err, c.err) || b.Total != c.total {
				t.Errorf("got %v, %v, want %v, %v", b.Total, err, c.total, c.err)
			}
		})
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for s := range NumStages {
		if name := s.String(); name == "invalid" || seen[name] {
			t.Errorf("stage %d is called %q", s, name)
		} else {
			seen[name] = true
		}
	}
	if s := Stage(-1).String() + NumStages.String(); s != "invalidinvalid" {
		t.Errorf("what is no stage is called %q", s)
	}
	if s := TraceTTFT.String() + TraceGap.String(); s != "ttftgap" {
		t.Errorf("the kinds are called %q", s)
	}
}
