// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "fmt"

const (
	// Single resets are clients that were killed.
	minResets = 5
	// Of the connections. The server's own resets are rare where all is well;
	// clients that cancel by closing early are not.
	resetsSentShare     = 0.01
	resetsReceivedShare = 0.05
)

// resets: connections ended by RST. Those that the server sends are its failures,
// those that it gets are clients that left.
var resets = rule{
	id:   "resets",
	docs: "docs/findings.md#resets",
	when: fmt.Sprintf("at least %d resets sent and %s of the connections (warning), or %d received and %s of them (notice)",
		minResets, percent(resetsSentShare), minResets, percent(resetsReceivedShare)),
	port: func(v *view) *Finding {
		l := &v.p.Loss
		if f := resetFinding(v, l.ResetsSent, resetsSentShare); f != nil {
			f.Severity = Warning
			f.Title = fmt.Sprintf("%s reset %s", v.name(), counted(*l.ResetsSent, "connection", "connections"))
			f.Remedy = "A server resets what it closes unread, what comes after a keep-alive time-out, and what a full accept queue refused. " +
				"Compare its keep-alive time with that of the clients and the proxy; look for restarts of the process."
			if v.raised[acceptOverflow.id] {
				f.Evidence = append(f.Evidence, "its accept queue overflowed in the same window (accept_overflow)")
			}
			return f
		}
		if f := resetFinding(v, l.ResetsReceived, resetsReceivedShare); f != nil {
			f.Severity = Notice
			f.Title = fmt.Sprintf("Clients of %s reset %s", v.name(), counted(*l.ResetsReceived, "connection", "connections"))
			f.Remedy = "Clients leave before their answer ends: look at their time-outs, and whether the engine stops working on what they left."
			return f
		}
		return nil
	},
}

func resetFinding(v *view, n *uint64, share float64) *Finding {
	conns := v.p.Connections
	if n == nil || *n < minResets || !positive(conns) || float64(*n) < share*float64(*conns) {
		return nil
	}
	return &Finding{Evidence: []string{fmt.Sprintf("%s on %s", counted(*n, "reset", "resets"), counted(*conns, "connection", "connections"))}}
}
