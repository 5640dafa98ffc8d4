// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

const (
	// No engine needs a second for a token; clients and probes begin to give up.
	stallGap = time.Second
	// Shorter ones are told as a notice, where they are far beyond this engine's pace.
	outlierGap     = 250 * time.Millisecond
	outlierTimes   = 50
	stallTimes     = 10 // a second must also stand out, or the engine is just slow
	minGapsOfStall = 20 // enough to know the engine's pace
	maxStreams     = 3
)

// engineStall: the engine fell silent in the middle of its answers. Counters of the
// engine call such a stream a success.
var engineStall = rule{
	id:   "engine_stall",
	docs: "docs/stages/engine.md",
	when: fmt.Sprintf("at least one gap holds %s or more of `engine` and %d times the p50 of the gaps; as a notice %s and %d times (%d gaps or more)",
		span(stallGap), stallTimes, span(outlierGap), outlierTimes, minGapsOfStall),
	port: func(v *view) *Finding {
		p := &v.gap
		if !p.known || p.stage[attribution.Engine] == nil || p.whole.Count() < minGapsOfStall {
			return nil
		}
		h := p.stage[attribution.Engine]
		p50 := quantile(p.whole, 0.5)
		f := &Finding{Severity: Warning}
		from := max(stallGap, stallTimes*p50)
		n := countFrom(h, from)
		if n == 0 {
			f.Severity = Notice
			from = max(outlierGap, outlierTimes*p50)
			n = countFrom(h, from)
		}
		if n == 0 {
			return nil
		}
		f.Title = fmt.Sprintf("The engine on %s fell silent: %s of up to %s in its answers", v.name(), counted(n, "pause", "pauses"), span(h.Max()))
		f.Evidence = []string{fmt.Sprintf("%s of %s of %s or more; the p50 of the gaps is %s", count(n),
			counted(p.whole.Count(), "gap", "gaps"), span(from), span(p50))}
		f.Evidence = append(f.Evidence, v.stalledStreams(from)...)
		f.Evidence = append(f.Evidence, v.waits()...)
		f.Remedy = "Look at the engine at that time: a long prefill or pre-emption in the batch, a stopped or swapped process, " +
			"a compile or module load, a worker that others wait for. Host stages of the same gaps are in the table of the port."
		return f
	},
}

// stalledStreams names the followed streams whose worst gap was such a pause.
func (v *view) stalledStreams(from time.Duration) []string {
	var lines []string
	for _, s := range v.m.Streams {
		if d := s.GapStages[attribution.Engine.String()]; s.Port == v.p.Port && s.NetNS == v.p.NetNS && d >= from && len(lines) < maxStreams {
			lines = append(lines, fmt.Sprintf("stream %s: a gap of %s, of it %s engine", s.ID, span(s.WorstGap), span(d)))
		}
	}
	return lines
}
