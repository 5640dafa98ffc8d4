// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"strings"
)

// coveragePoor: a signal could not be had at all. Poorer rungs are told in the
// coverage list and are no finding.
var coveragePoor = rule{
	id:   "coverage_poor",
	docs: "docs/findings.md#coverage_poor",
	when: "at least one signal is missing (no rung of its ladder loads)",
	node: func(m *Measured) []Finding {
		var names, reasons, evidence []string
		of := map[string][]string{} // signals by reason
		for i := range m.Coverage {
			if c := &m.Coverage[i]; c.Missing {
				names = append(names, c.Signal)
				if reason := why(c); len(of[reason]) == 0 {
					reasons = append(reasons, reason)
				}
				of[why(c)] = append(of[why(c)], c.Signal)
			}
		}
		for _, reason := range reasons {
			evidence = append(evidence, strings.Join(of[reason], ", ")+": "+reason)
		}
		if len(names) == 0 {
			return nil
		}
		return []Finding{{
			Severity: Notice,
			Title: fmt.Sprintf("%d of %s not measured: %s", len(names),
				counted(uint64(len(m.Coverage)), "signal was", "signals were"), strings.Join(names, ", ")),
			Evidence: evidence,
			Remedy: "What is not measured is left out of this report and no finding speaks of it. Run as root, or give the agent the rights that " +
				"`velo-agent probes` names.",
		}}
	},
}

// why is the reason that a signal is missing: the last rung's, the poorest that
// was tried.
func why(c *Coverage) string {
	if n := len(c.BetterRefused); n > 0 {
		return c.BetterRefused[n-1].Rung + ": " + c.BetterRefused[n-1].Why
	}
	if c.Note != "" {
		return c.Note
	}
	return "no rung of its ladder loads"
}
