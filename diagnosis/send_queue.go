// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

const (
	// One answer that could not leave for a second: a client that stopped reading.
	sendStall = time.Second
	// A cause is named where it covers a tenth of the stage's time.
	causePart = 0.10
)

// sendQueue: what was written does not leave. The why is evidence: the client's
// window, the server's own buffer, or the network.
var sendQueue = rule{
	id:   "send_queue",
	docs: "docs/stages/send_queue.md",
	when: stageWhen(attribution.SendQueue) + fmt.Sprintf("; or, as a notice, one write needed %s to leave", span(sendStall)),
	port: func(v *view) *Finding {
		b := v.burdenOf(attribution.SendQueue)
		if b == nil {
			return sendStalled(v)
		}
		f := v.finding("The send queue", b)
		var remedy string
		f.Evidence, remedy = appendWhy(f.Evidence, v)
		f.Remedy = remedy
		return f
	},
}

// sendStalled tells of single clients, which the server cannot help.
func sendStalled(v *view) *Finding {
	for _, p := range []*partition{&v.ttft, &v.gap} {
		h := p.stage[attribution.SendQueue]
		if h == nil || p.whole.Count() < minExchanges {
			continue
		}
		if n := countFrom(h, sendStall); n > 0 {
			f := &Finding{
				Severity: Notice,
				Title: fmt.Sprintf("%s to clients of %s needed a second or more to leave (the longest %s)",
					counted(n, "write", "writes"), v.name(), span(h.Max())),
			}
			f.Evidence, f.Remedy = appendWhy(nil, v)
			return f
		}
	}
	return nil
}

// appendWhy adds why data did not leave, and answers what to do about the
// strongest cause.
func appendWhy(evidence []string, v *view) ([]string, string) {
	l := &v.p.Loss
	part := time.Duration(causePart * float64(v.ttft.sum[attribution.SendQueue]+v.gap.sum[attribution.SendQueue]))
	rwnd, sndbuf := opt(l.RwndLimited), opt(l.SndbufLimited)
	window := rwnd > 0 || positive(l.ZeroWindows)
	if window {
		line := "closed window: "
		if l.RwndLimited != nil {
			line += fmt.Sprintf("connections were held back by their client's window for %s all together", span(rwnd))
		}
		if positive(l.ZeroWindows) {
			if l.RwndLimited != nil {
				line += ", "
			}
			line += fmt.Sprintf("a client closed its window %s", counted(*l.ZeroWindows, "time", "times"))
		}
		evidence = append(evidence, line)
	}
	if sndbuf > 0 {
		evidence = append(evidence, fmt.Sprintf("small send buffer: connections were held back by it for %s all together", span(sndbuf)))
	}
	if positive(l.NagleWrites) {
		evidence = append(evidence, fmt.Sprintf("Nagle: %s behind an unacknowledged one, and the acknowledgement may come 40 ms late", counted(*l.NagleWrites, "small write waited", "small writes waited")))
	}
	if positive(l.Retransmits) {
		evidence = append(evidence, fmt.Sprintf("congestion or loss: %s", counted(*l.Retransmits, "retransmitted segment", "retransmitted segments")))
	}
	switch {
	case rwnd >= max(part, 1) && rwnd >= sndbuf, positive(l.ZeroWindows) && sndbuf < max(part, 1):
		return evidence, "The clients do not read as fast as the server writes: look at them (or at the proxy in front). " +
			"A server that buffers for them grows in memory: bound it."
	case sndbuf >= max(part, 1):
		return evidence, "The socket's send buffer is smaller than what is under way: raise net.ipv4.tcp_wmem and net.core.wmem_max, or do not set SO_SNDBUF."
	case positive(l.NagleWrites):
		return evidence, "The server leaves Nagle's algorithm on: set TCP_NODELAY on the sockets that it accepts."
	case positive(l.Retransmits):
		return evidence, "The network loses packets between this node and the clients: look at the interface's drops, the path and its MTU."
	case l.RwndLimited == nil && l.SndbufLimited == nil && l.Retransmits == nil:
		return append(evidence, "why it did not leave is not measured"),
			"See with ss -tim on the port whether the client's window (rwnd_limited), the send buffer (sndbuf_limited) or loss (retrans) holds it back."
	}
	if !window && sndbuf == 0 {
		evidence = append(evidence, "no closed window, full send buffer or retransmission was seen")
	}
	return evidence, "What is left is pacing (congestion control bbr, fq) or the queue of the network interface: compare with cubic and look at tc -s qdisc."
}

func opt(d *time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return *d
}
