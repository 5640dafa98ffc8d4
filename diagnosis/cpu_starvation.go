// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

const (
	// A fifth of the time that a thread wants to run it does not: on a node with a
	// CPU to spare that is below 1 %.
	delayShare = 0.20
	// And it is a twentieth of the window: a thread that runs for 2 ms in 10 s and
	// waits for one of them harms nobody.
	delayOfWindow = 0.05
)

// cpuStarvation: threads are woken and do not run. It halves decode speed with no
// throttling in sight (velo addenda, Tanguille/cluster#4879).
var cpuStarvation = rule{
	id:   "cpu_starvation",
	docs: "docs/stages/wake_to_run.md",
	when: stageWhen(attribution.WakeToRun) + fmt.Sprintf("; or the threads of a role are runnable without running for at least %s of the time they want to run "+
		"and %s of the window", percent(delayShare), percent(delayOfWindow)),
	port: func(v *view) *Finding {
		f := starvationFinding(v)
		if f == nil {
			return nil
		}
		f.Evidence = append(f.Evidence, v.waits()...)
		f.Remedy = "Give the server CPUs of its own (cpuset, higher cpu.weight or CPU request), or move what competes for them away; " +
			"look at load generators and sidecars on this node first. It is not the network and not the model."
		if v.raised[cpuThrottled.id] {
			f.Evidence = append(f.Evidence, "its cgroup is throttled: part of this waiting is the quota (cpu_throttled)")
			f.Remedy = "Repair the throttling first (cpu_throttled), then measure again. " + f.Remedy
		}
		return f
	},
}

func starvationFinding(v *view) *Finding {
	if b := v.burdenOf(attribution.WakeToRun); b != nil {
		return v.finding("Waiting for a CPU", b)
	}
	var worst *Role
	for i := range v.p.Sched {
		r := &v.p.Sched[i]
		if v.starved(r) && (worst == nil || *r.RunDelay > *worst.RunDelay) {
			worst = r
		}
	}
	if worst == nil {
		return nil
	}
	return &Finding{
		Severity: Warning,
		Title: fmt.Sprintf("Threads of the server on %s wait for a CPU: %s of the time that %s wants to run",
			v.name(), percent(delayPart(worst)), worst.title()),
	}
}

func (v *view) starved(r *Role) bool {
	return r.RunDelay != nil && r.OnCPU != nil && delayPart(r) >= delayShare &&
		*r.RunDelay >= time.Duration(delayOfWindow*float64(v.m.Window)) && v.m.Window > 0
}

// delayPart is the part of its runnable time that a role did not run.
func delayPart(r *Role) float64 {
	if *r.RunDelay <= 0 {
		return 0
	}
	return float64(*r.RunDelay) / float64(*r.RunDelay+*r.OnCPU)
}
