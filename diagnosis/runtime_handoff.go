// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "github.com/velo-agent/velo-agent/attribution"

// runtimeHandoff: the woken thread ran and passed the socket to another one of the
// language's runtime (Go, Tokio, libuv), which was late.
var runtimeHandoff = rule{
	id:   "runtime_handoff",
	docs: "docs/stages/runtime_handoff.md",
	when: stageWhen(attribution.RuntimeHandoff),
	port: func(v *view) *Finding {
		b := v.burdenOf(attribution.RuntimeHandoff)
		if b == nil {
			return nil
		}
		f := v.finding("The runtime's hand-over to another thread", b)
		f.Evidence = append(f.Evidence, v.waits()...)
		f.Remedy = "The runtime's workers are busy when a request comes: give it more of them (GOMAXPROCS, TOKIO_WORKER_THREADS, more processes), " +
			"and move work that blocks or computes (tokenising, templates, JSON) off them."
		return f
	},
}
