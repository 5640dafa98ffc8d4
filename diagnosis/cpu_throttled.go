// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "fmt"

const (
	// One CFS period is 100 ms: with fewer than ten a share says nothing.
	minPeriods = 10
	// Some bursts at start-up are normal.
	throttledShare = 0.05
	// Every fourth period stopped: no latency target survives that.
	throttledShareCritical = 0.25
)

// cpuThrottled: the cgroup's quota was used up and all its threads stood still
// until the next period (vLLM #49460, llama.cpp with 48 threads on 7.65 CPUs).
var cpuThrottled = rule{
	id:   "cpu_throttled",
	docs: "docs/findings.md#cpu_throttled",
	when: fmt.Sprintf("at least %s of the periods of the cgroup were throttled (critical: %s), of %d periods or more",
		percent(throttledShare), percent(throttledShareCritical), minPeriods),
	port: func(v *view) *Finding {
		// Roles of one cgroup carry the same figures: the worst one speaks.
		var t *Throttle
		var share float64
		threads := 0
		for i := range v.p.Sched {
			r := &v.p.Sched[i]
			threads += r.Threads
			if r.Throttled == nil || r.Throttled.Periods < minPeriods {
				continue
			}
			if s := float64(r.Throttled.ThrottledPeriods) / float64(r.Throttled.Periods); s > share {
				t, share = r.Throttled, s
			}
		}
		if t == nil || share < throttledShare {
			return nil
		}
		f := &Finding{
			Severity: Warning,
			Title:    fmt.Sprintf("The cgroup of the server on %s is throttled in %s of its periods", v.name(), percent(share)),
			Evidence: []string{fmt.Sprintf("%s of %s throttled, all together %s", count(t.ThrottledPeriods),
				counted(t.Periods, "period", "periods"), span(t.Time))},
			Remedy: "Raise the CPU limit of the container, or start fewer threads than it allows (pools sized by the CPUs of the host are too large). " +
				"Average CPU use does not show this: a burst uses up the quota within one period.",
		}
		if share >= throttledShareCritical {
			f.Severity = Critical
		}
		if t.Quota > 0 {
			f.Evidence = append(f.Evidence, fmt.Sprintf("quota %s CPUs for %s", digits(t.Quota), counted(uint64(threads), "thread", "threads")))
		}
		if v.p.Cgroup != "" {
			f.Evidence = append(f.Evidence, "cgroup "+v.p.Cgroup)
		}
		f.Evidence = append(f.Evidence, v.waits()...)
		return f
	},
}
