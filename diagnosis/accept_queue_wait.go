// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// acceptWaitAlone is a p99 of the queue that is a finding whatever TTFT says: TTFT
// is clipped to the last request byte, a client also waits before that.
const acceptWaitAlone = 100 * time.Millisecond

// acceptQueueWait: connections sit established and not accepted. The server's own
// TTFT clock has not begun (velo ttft-gap-diagnosis; llm-d and vLLM "client and
// server TTFT differ").
var acceptQueueWait = rule{
	id:   "accept_queue_wait",
	docs: "docs/stages/accept_wait.md",
	when: stageWhen(attribution.AcceptWait) + fmt.Sprintf("; or the wait for accept has a p99 of at least %s over at least %d connections",
		span(acceptWaitAlone), minExchanges),
	port: func(v *view) *Finding {
		f := acceptFinding(v)
		if f == nil {
			return nil
		}
		f.Evidence = append(f.Evidence, queueFigures(v)...)
		a := v.p.Accept
		if a != nil && positive(a.EMFILE) {
			f.Evidence = append(f.Evidence, fmt.Sprintf("accept failed with EMFILE %s", counted(*a.EMFILE, "time", "times")))
		}
		f.Remedy = "The server accepts too slowly. Its accept loop shares a thread with other work or waits for a CPU: " +
			"give it a thread of its own, more acceptors (SO_REUSEPORT, more API server processes), or keep connections alive. " +
			"A longer queue makes this wait longer, not shorter."
		if r := slowestRole(v.p); r != nil && quantile(r.Wait, 0.99) >= tailFloor {
			f.Evidence = append(f.Evidence, v.waits()...)
			f.Remedy = "The threads that accept wait for a CPU themselves: repair that first. " + f.Remedy
		}
		return f
	},
}

func acceptFinding(v *view) *Finding {
	if b := v.burdenOf(attribution.AcceptWait); b != nil {
		return v.finding("The accept queue", b)
	}
	a := v.p.Accept
	if a == nil || a.Wait == nil || a.Wait.Count() < minExchanges || quantile(a.Wait, 0.99) < acceptWaitAlone {
		return nil
	}
	return &Finding{
		Severity: Warning,
		Title: fmt.Sprintf("Connections to %s wait up to %s to be accepted (p99 of %s)",
			v.name(), span(quantile(a.Wait, 0.99)), count(a.Wait.Count())),
	}
}
