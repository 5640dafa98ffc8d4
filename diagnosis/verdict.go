// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"

	"github.com/velo-agent/velo-agent/attribution"
)

// A verdict is read in seconds: the worst few, the rest is in the findings.
const (
	maxProblemsTold = 3
	maxPortsTold    = 4
)

// verdict says in a few sentences what an operator must know.
func verdict(m *Measured, views []*view, found []Finding) []string {
	var lines []string
	problems := 0
	for _, f := range found {
		if f.Severity == Notice {
			continue
		}
		if problems++; problems <= maxProblemsTold {
			lines = append(lines, f.Title+".")
		}
	}
	if problems > maxProblemsTold {
		lines = append(lines, fmt.Sprintf("And %s more: see the findings.", counted(uint64(problems-maxProblemsTold), "finding", "findings")))
	}
	if len(views) == 0 {
		lines = append(lines, "No watched port: no server that listens was found, so nothing was attributed.")
	}
	for i, v := range views {
		if i == maxPortsTold {
			lines = append(lines, fmt.Sprintf("And %s more: see below.", counted(uint64(len(views)-i), "port", "ports")))
			break
		}
		if line := v.verdict(problems > 0, found); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// verdict of one port. Where problems are told already, a port that is well needs
// no sentence.
func (v *view) verdict(problems bool, found []Finding) string {
	switch {
	case v.p.TTFT == nil:
		return v.name() + ": TTFT and gaps were not measured: " + v.whyNothing() + "."
	case v.p.TTFT.Count() == 0 && v.gapCount() == 0:
		return fmt.Sprintf("%s served no response in the %s of the window: send it requests and measure again.", v.name(), span(v.m.Window))
	case problems:
		return ""
	case v.p.TTFT.Count() < minExchanges:
		return fmt.Sprintf("%s: %s too few for a judgement (%d are needed).", v.name(),
			counted(v.p.TTFT.Count(), "exchange is", "exchanges are"), minExchanges)
	case !v.ttft.known:
		return v.name() + ": the stages of TTFT were not measured: " + v.whyNothing() + "."
	}
	for _, f := range found {
		if f.ID == engineDominates.id && f.Port == v.p.Port && f.NetNS == v.p.NetNS {
			return "No stage of the host stands out. " + f.Title + "."
		}
	}
	largest := attribution.AcceptWait
	for s := range attribution.NumStages {
		if v.ttft.share[s] > v.ttft.share[largest] {
			largest = s
		}
	}
	return fmt.Sprintf("%s: no stage of the host stands out. TTFT is %s at p50; the largest part is %s (%s).",
		v.name(), span(quantile(v.p.TTFT, 0.5)), largest, percent(v.ttft.share[largest]))
}

func (v *view) gapCount() uint64 {
	if v.p.Gap == nil {
		return 0
	}
	return v.p.Gap.Count()
}

// ttftNeeds are the signals without which no TTFT can be told, by name.
var ttftNeeds = []string{"probes", "marks", "left", "read", "arrived"}

// whyNothing is the reason that TTFT is missing: that of a signal which it needs,
// or of any that is missing.
func (v *view) whyNothing() string {
	for _, name := range ttftNeeds {
		if c := v.m.signal(name); c != nil && c.Missing {
			return c.Signal + ": " + why(c)
		}
	}
	for i := range v.m.Coverage {
		if c := &v.m.Coverage[i]; c.Missing {
			return c.Signal + ": " + why(c)
		}
	}
	return "the signals for it were not attached"
}
