// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"

	"github.com/velo-agent/velo-agent/attribution"
)

// unexplainedShare is more than the agent's own tests allow by far (2 %).
const unexplainedShare = 0.05

// unexplainedHigh: the agent could not say where a part of the time went. It is
// about the agent, not about the node, so it never changes the exit code.
var unexplainedHigh = rule{
	id:   "unexplained_high",
	docs: "docs/stages/unexplained.md",
	when: fmt.Sprintf("`unexplained` is at least %s of the TTFT (%d exchanges or more) or of the gap time (%d gaps or more)",
		percent(unexplainedShare), minExchanges, minGaps),
	port: func(v *view) *Finding {
		p := &v.ttft
		if !p.unexplained(minExchanges) {
			p = &v.gap
		}
		if !p.unexplained(minGaps) {
			return nil
		}
		f := &Finding{
			Severity: Notice,
			Share:    new(p.share[attribution.Unexplained]),
			Title: fmt.Sprintf("%s of the %s of %s is unexplained (mean %s)", percent(p.share[attribution.Unexplained]), p.what,
				v.name(), span(p.mean(attribution.Unexplained))),
			Remedy: "Read the other shares with that much doubt.",
		}
		for s := range attribution.Unexplained {
			// A gap has no other stages: nothing arrives within it.
			partOfIt := p == &v.ttft || s == attribution.Engine || s == attribution.SendQueue
			if partOfIt && p.stage[s] == nil {
				f.Evidence = append(f.Evidence, fmt.Sprintf("%s was not measured: its time is in here", s))
			}
		}
		for _, name := range []string{"accepted", "wake_to_run", "read"} {
			if c := v.m.signal(name); c != nil && c.Missing {
				f.Evidence = append(f.Evidence, fmt.Sprintf("signal %s: %s", name, why(c)))
			}
		}
		if len(f.Evidence) == 0 {
			f.Evidence = []string{"all stages were measured: steps were lost or came in an order that the rules do not know"}
			f.Remedy += " Please report it with this report attached."
		} else {
			f.Remedy += " Give the agent what the missing signals need (see coverage)."
		}
		return f
	},
}

func (p *partition) unexplained(minSamples uint64) bool {
	return p.known && p.whole.Count() >= minSamples && p.share[attribution.Unexplained] >= unexplainedShare
}
