// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "fmt"

const (
	// A handful is a tail-loss probe or a client that went away.
	minRetransmits = 10
	// Of the response writes. A datacentre path is below 0.01 %; at 1 % every
	// hundredth token waits for a retransmission.
	retransmitRate = 0.01
)

// retransmits: segments had to be sent again.
var retransmits = rule{
	id:   "retransmits",
	docs: "docs/findings.md#retransmits",
	when: fmt.Sprintf("at least %d retransmitted segments and %s of the response writes", minRetransmits, percent(retransmitRate)),
	port: func(v *view) *Finding {
		n, writes := v.p.Loss.Retransmits, v.responseWrites()
		if n == nil || *n < minRetransmits || writes < minExchanges {
			return nil
		}
		rate := float64(*n) / float64(writes)
		if rate < retransmitRate {
			return nil
		}
		return &Finding{
			Severity: Warning,
			Title:    fmt.Sprintf("%s had to send %s again", v.name(), counted(*n, "segment", "segments")),
			Evidence: []string{fmt.Sprintf("%s on %s: %s", counted(*n, "retransmission", "retransmissions"),
				counted(writes, "response write", "response writes"), percent(rate))},
			Remedy: "Look for loss on the way to the clients: drops of the interface (ip -s link), a full queue (tc -s qdisc), a wrong MTU, a policer. " +
				"Each loss costs a token at least one round trip.",
		}
	},
}

// responseWrites is how many writes of responses were seen: the first of each
// exchange and one for each gap. 0 where that is not measured.
func (v *view) responseWrites() uint64 {
	var n uint64
	if v.p.TTFT != nil {
		n += v.p.TTFT.Count()
	}
	if v.p.Gap != nil {
		n += v.p.Gap.Count()
	}
	return n
}
