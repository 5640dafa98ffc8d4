// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"maps"
	"slices"
)

// lostShare is the part of the exchanges from which on lost events may move a
// quantile that a finding rests on.
const lostShare = 0.01

// eventsLost: a full map or ring, an undecodable record, an impossible time.
// Whatever is lost is said, however little.
var eventsLost = rule{
	id:   "events_lost",
	docs: "docs/findings.md#events_lost",
	when: fmt.Sprintf("any counter of lost events is above 0 (notice); all together at least %s of the response writes (warning)", percent(lostShare)),
	node: func(m *Measured) []Finding {
		var total, writes uint64
		f := Finding{Severity: Notice}
		for _, place := range slices.Sorted(maps.Keys(m.Agent.Lost)) {
			if n := m.Agent.Lost[place]; n > 0 {
				total += n
				f.Evidence = append(f.Evidence, place+": "+count(n))
			}
		}
		if total == 0 {
			return nil
		}
		for i := range m.Ports {
			writes += (&view{p: &m.Ports[i]}).responseWrites()
		}
		f.Title = fmt.Sprintf("The agent lost %s: the figures may be short of some", counted(total, "event", "events"))
		f.Remedy = "What was lost is in no figure above. If it stays, watch fewer ports, or give the agent larger maps."
		if writes > 0 && float64(total) >= lostShare*float64(writes) {
			f.Severity = Warning
			f.Title = fmt.Sprintf("The agent lost %s on %s: do not trust the quantiles of this window",
				counted(total, "event", "events"), counted(writes, "response write", "response writes"))
		}
		return []Finding{f}
	},
}
