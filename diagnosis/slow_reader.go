// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"

	"github.com/velo-agent/velo-agent/attribution"
)

// busyThread is the part of one CPU from which on a single thread has no time to
// spare: an event loop at 90 % answers a new request ten times later than an idle one.
const busyThread = 0.90

// slowReader: the thread runs and does not read: an event loop that does something
// else (vLLM #34789, the GIL of #6797).
var slowReader = rule{
	id:   "slow_reader",
	docs: "docs/stages/reader.md",
	when: stageWhen(attribution.Reader),
	port: func(v *view) *Finding {
		b := v.burdenOf(attribution.Reader)
		if b == nil {
			return nil
		}
		f := v.finding("The blocked event loop", b)
		for i := range v.p.Sched {
			r := &v.p.Sched[i]
			if part, ok := v.busy(r); ok && part >= busyThread {
				f.Evidence = append(f.Evidence, fmt.Sprintf("%s: %s of one CPU for each thread: it has no time to read", r.title(), percent(part)))
			}
		}
		f.Remedy = "The request lies in the socket while the reading thread does other work or sleeps. Move what blocks (tokenising, image decoding, " +
			"logging, synchronous calls) off the event loop, or add API server processes. More cores do not help a single loop."
		return f
	},
}

// busy is the part of the window that each thread of the role was on a CPU.
func (v *view) busy(r *Role) (part float64, ok bool) {
	if r.OnCPU == nil || r.Threads <= 0 || v.m.Window <= 0 {
		return 0, false
	}
	return float64(*r.OnCPU) / float64(v.m.Window) / float64(r.Threads), true
}
