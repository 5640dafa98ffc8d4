// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/velo-agent/velo-agent/tests/results"
)

// goal is a bound on a figure of the plane, or on its ratio to another carrier's.
type goal struct {
	arm    arm
	to     string // carrier; "": the figure itself
	figure figure
	most   float64
	in     func(testCase) bool
}

const (
	// noAllocations is what "0 allocations per record" tolerates: the end of a stream and
	// the runtime itself allocate now and then.
	noAllocations = 0.01
	quicRecords   = 8192 * 918
)

func always(testCase) bool           { return true }
func paced(c testCase) bool          { return c.paced }
func perPeer(c testCase) bool        { return !c.perStream }
func perStream(c testCase) bool      { return c.perStream }
func longStreams(c testCase) bool    { return c.records >= 512 }
func largestFlatOut(c testCase) bool { return !c.paced && c.streams*c.records >= quicRecords }

var goals = []goal{
	{push, velo, cpu, 0.2, always},
	{recv, velo, cpu, 0.5, perPeer},
	{recv, velo, cpu, 0.7, perStream},
	{push, velo, p99, 0.5, paced},
	{recv, velo, p99, 0.5, paced},
	{push, velo, memory, 0.5, paced},
	{recv, velo, memory, 0.5, paced},
	{push, velo, setupP99, 1, paced},
	{recv, velo, setupP99, 1, paced},
	{push, "quic", cpuConsumer, 0.1, largestFlatOut},
	{push, "quic", cpuProducer, 0.25, largestFlatOut},
	{push, "", writes, 0.01, perStream},
	{recv, "", writes, 0.01, perStream},
	{push, "", allocs, noAllocations, longStreams},
	{recv, "", allocs, noAllocations, longStreams},
}

// judge adds the verdicts of a case.
func (r *rig) judge(m measured) {
	m.judgeFaults(r.out)
	for _, g := range goals {
		if !g.in(m.testCase) || !slices.Contains(m.arms, g.arm) {
			continue
		}
		if g.to == "" {
			m.judge(r.out, g.arm, g.figure, g.most*r.slack, results.Lower, m.remark(g.arm))
			continue
		}
		other := arm{carrier: g.to}
		note := cmp.Or(r.absent[g.to], join(m.remark(other), m.remark(g.arm)))
		m.judgeRatio(r.out, g.arm, other, g.figure, g.most*r.slack, results.Lower, note)
	}
}

// judgeFaults adds whether every record arrived as it was sent.
func (t *table) judgeFaults(out *results.Run) {
	for _, a := range t.arms {
		faults, note := 0.0, ""
		if err := t.faults[a]; err != nil {
			faults, note = 1, err.Error()
		}
		out.Add(fmt.Sprintf("%s: %v: wrong, missing or refused records", t.name, a), faults, "", 0, results.Lower, max(1, len(t.reps[a])), note)
	}
}

// judge adds a figure.
func (t *table) judge(out *results.Run, a arm, f figure, goal float64, better results.Better, note string) {
	name := fmt.Sprintf("%s: %v: %s", t.name, a, f)
	xs := t.of(a, f)
	if len(xs) == 0 {
		out.Skip(name, f.unit(), goal, better, "it was not measured")
		return
	}
	s := spreadOf(xs)
	out.Add(name, s.Median, f.unit(), goal, better, len(xs), join(s.String(), note))
}

// judgeRatio adds a figure as a multiple of another arm's.
func (t *table) judgeRatio(out *results.Run, a, to arm, f figure, goal float64, better results.Better, note string) {
	name := fmt.Sprintf("%s: %v: %s ÷ %v's", t.name, a, f, to)
	s, ok := t.ratio(a, to, f)
	if !ok {
		out.Skip(name, "", goal, better, cmp.Or(note, "one of the two has no figures"))
		return
	}
	out.Add(name, s.Median, "", goal, better, len(t.of(a, f)), join(s.String(), note))
}

// join joins what is said.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
