// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	// From here on it is a burst that clients notice as seconds of connect time or
	// as resets, not one lost handshake.
	overflowCritical = 10
	// Of the connections that came.
	overflowShareCritical = 0.01
)

// acceptOverflow: the accept queue was full when a handshake ended. The kernel
// drops it: the client repeats its SYN after 1 s, or gets a reset with its first
// data (tcp_abort_on_overflow, syncookies).
var acceptOverflow = rule{
	id:   "accept_overflow",
	docs: "docs/accept/overflows.md",
	when: fmt.Sprintf("at least one overflow of the listener (critical: %d and %s of the connections); where the listener has no figure "+
		"of its own, at least one ListenOverflow of its network namespace", overflowCritical, percent(overflowShareCritical)),
	port: func(v *view) *Finding {
		a := v.p.Accept
		if a == nil || !positive(a.Overflows) {
			return nil
		}
		f := &Finding{
			Severity: Warning,
			Title: fmt.Sprintf("The accept queue of %s overflowed %s in %s%s", v.name(),
				counted(*a.Overflows, "time", "times"), span(v.m.Window), limitWords(a, ": ")),
			Evidence: []string{depthLine(a)},
			Remedy:   limitRemedy(a),
		}
		if a.Arrivals != nil {
			share := float64(*a.Overflows) / float64(*a.Overflows+*a.Arrivals)
			f.Evidence = append([]string{fmt.Sprintf("%s of the connections that came were refused by the full queue", percent(share))}, f.Evidence...)
			if *a.Overflows >= overflowCritical && share >= overflowShareCritical {
				f.Severity = Critical
			}
		}
		f.Evidence = append(f.Evidence, "such a client connects only after repeating its SYN (1 s, 3 s, …) or is reset with its first data")
		return f
	},
	node: namespaceOverflows,
}

// namespaceOverflows speaks for the listeners that have no figure of their own,
// once for each network namespace.
func namespaceOverflows(m *Measured) []Finding {
	var found []Finding
	seen := map[uint64]bool{}
	for i := range m.Ports {
		p := &m.Ports[i]
		if p.Accept != nil && p.Accept.Overflows != nil || !positive(p.Loss.NodeListenOverflows) || seen[p.NetNS] {
			continue
		}
		seen[p.NetNS] = true
		n := *p.Loss.NodeListenOverflows
		f := Finding{
			Severity: Warning, NetNS: p.NetNS,
			Title: fmt.Sprintf("Accept queues of %s overflowed %s",
				cmp.Or(namespaceIn(m.namespaces(), p.NetNS), "this network namespace"), counted(n, "time", "times")),
			Evidence: []string{fmt.Sprintf("ListenOverflows rose by %s; which listener it was is not measured", count(n))},
			Remedy:   "Find the listener whose queue is full (ss -ltn: Recv-Q at Send-Q) and see why its server accepts too slowly.",
		}
		for j := range m.Ports {
			q := &m.Ports[j]
			if q.NetNS == p.NetNS && q.Accept != nil && deepest(q.Accept) >= q.Accept.each() && q.Accept.Limit > 0 {
				f.Evidence = append(f.Evidence, fmt.Sprintf("the queue of :%d was full: %s of %s", q.Port, count(deepest(q.Accept)), count(q.Accept.each())))
			}
		}
		found = append(found, f)
	}
	return found
}

// deepest is the deepest that the queue is known to have been.
func deepest(a *Accept) uint64 {
	if a.HighWater != nil {
		return max(a.Depth, *a.HighWater)
	}
	return a.Depth
}

// queueFigures tells what is known of the queue and of what bounds it.
func queueFigures(v *view) []string {
	a := v.p.Accept
	if a == nil {
		return nil
	}
	lines := []string{depthLine(a) + limitWords(a, ", ")}
	if a.Arrivals != nil && v.m.Window > 0 {
		lines = append(lines, fmt.Sprintf("%s entered the queue in %s: %s a second", counted(*a.Arrivals, "connection", "connections"),
			span(v.m.Window), rate(float64(*a.Arrivals)/v.m.Window.Seconds())))
	}
	if a.Wait != nil && a.Wait.Count() > 0 {
		upper := ""
		if a.WaitIsInterval {
			upper = " (an upper bound)"
		}
		lines = append(lines, fmt.Sprintf("a connection waited for accept p50 %s, p99 %s%s",
			span(quantile(a.Wait, 0.5)), span(quantile(a.Wait, 0.99)), upper))
	}
	return lines
}

func depthLine(a *Accept) string {
	if a.HighWater == nil {
		return fmt.Sprintf("queue %s deep at the end", count(a.Depth))
	}
	return fmt.Sprintf("queue %s deep at most, %s at the end", count(*a.HighWater), count(a.Depth))
}

// limitWords says what the limit is and who set it, after sep; nothing where it is
// not known.
func limitWords(a *Accept, sep string) string {
	if a.Limit == 0 {
		return ""
	}
	words := sep + "limit " + count(a.each())
	if a.Listeners > 1 {
		words += fmt.Sprintf(" of each of %d listeners", a.Listeners)
	}
	switch a.LimitBy() {
	case "backlog":
		return words + fmt.Sprintf(" set by the application's backlog (somaxconn is %s)", count(a.Somaxconn))
	case "somaxconn":
		return words + " set by net.core.somaxconn"
	}
	if a.Somaxconn > 0 {
		return words + fmt.Sprintf(" (the listener is older than the present somaxconn of %s)", count(a.Somaxconn))
	}
	return words
}

func limitRemedy(a *Accept) string {
	const first = "A longer queue only helps against bursts: see first why the server accepts too slowly. "
	switch a.LimitBy() {
	case "backlog":
		return first + fmt.Sprintf("What binds is the backlog of %s that the application gives to listen(): raise it there; somaxconn (%s) is not the limit.",
			count(a.each()), count(a.Somaxconn))
	case "somaxconn":
		return first + fmt.Sprintf("What binds is net.core.somaxconn = %s of the server's network namespace: raise it there and restart the server.", count(a.Somaxconn))
	}
	return first + "Compare the backlog that the application gives to listen() with net.core.somaxconn of its network namespace: the smaller one binds."
}

// slowestRole is the role whose threads wait longest for a CPU at p99; nil where
// that is not measured.
func slowestRole(p *Port) *Role {
	var roles []*Role
	for i := range p.Sched {
		if r := &p.Sched[i]; r.Wait != nil && r.Wait.Count() >= minTail {
			roles = append(roles, r)
		}
	}
	if len(roles) == 0 {
		return nil
	}
	return slices.MaxFunc(roles, func(a, b *Role) int { return cmp.Compare(quantile(a.Wait, 0.99), quantile(b.Wait, 0.99)) })
}
