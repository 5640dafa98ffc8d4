// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"

	"github.com/velo-agent/velo-agent/attribution"
)

// engineShare is the part from which on a perfect host would shorten TTFT by less
// than a third: less than a change of the engine's batch or queue does.
const engineShare = 0.70

// engineDominates acquits the host: the time is in the engine. It is said only
// where no finding says that the engine's threads are held back.
var engineDominates = rule{
	id:   "engine_dominates",
	docs: "docs/stages/engine.md",
	when: fmt.Sprintf("`engine` takes at least %s of the TTFT (%d exchanges or more) and no CPU finding is raised for the port",
		percent(engineShare), minExchanges),
	port: func(v *view) *Finding {
		p := &v.ttft
		if !p.known || p.stage[attribution.Engine] == nil || p.whole.Count() < minExchanges || p.share[attribution.Engine] < engineShare ||
			v.raised[cpuStarvation.id] || v.raised[cpuThrottled.id] {
			return nil
		}
		share := p.share[attribution.Engine]
		host := 1 - share - p.share[attribution.Unexplained]
		f := &Finding{
			Severity: Notice,
			Share:    new(share),
			Title: fmt.Sprintf("The time of %s is in the engine itself, not in the host: %s of the TTFT (mean %s of %s)",
				v.name(), percent(share), span(p.mean(attribution.Engine)), span(p.wholeMean())),
			Evidence: append(v.figures(attribution.Engine),
				fmt.Sprintf("accept, wake-up, reading and sending together take %s of the TTFT", percent(max(host, 0)))),
			Remedy: "Tuning the host will not help much. Look at the engine's own queue, batch size and prefill, and at what it waits for " +
				"(behind a gateway `engine` is everything behind it).",
		}
		if waits := v.waits(); len(waits) > 0 {
			f.Evidence = append(f.Evidence, waits...)
		} else {
			f.Evidence = append(f.Evidence, "whether the engine's threads waited for a CPU is not measured")
		}
		return f
	},
}
