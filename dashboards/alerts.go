// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"fmt"
	"slices"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/collectors"
)

const (
	critical = "critical"
	warning  = "warning"
	info     = "info"

	// here names the port in a summary.
	here = "port {{ $labels.port }}{{ with $labels.netns }} in network namespace {{ . }}{{ end }} of {{ $labels.instance }}"

	// An objective is to be met by 99 % of the exchanges of 30 days. Burning that
	// budget 14.4 times too fast uses up 2 % of it in an hour, 6 times 5 % in six.
	budget   = 0.01
	fastBurn = 14.4
	slowBurn = 6
)

// alerts are in the order of docs/alerts.md.
func alerts() []Rule {
	return slices.Concat(latencyAlerts(), acceptAlerts(), hostAlerts(), agentAlerts(), planeAlerts())
}

func latencyAlerts() []Rule {
	return slices.Concat(
		burn("TTFT", "ttft", "TTFT"),
		burn("Gap", "gap", "gaps"),
		[]Rule{
			{
				Alert: "VeloAgentWakeToRunHigh", For: "10m", Severity: warning,
				Expr:        heavy(ttft, attribution.WakeToRun, 0.1, 0.001, 20),
				Summary:     "The server on " + here + " waits for a CPU",
				Description: "{{ $value | humanizePercentage }} of the TTFT pass before the woken thread runs.",
			},
			{
				Alert: "VeloAgentSendQueueDominates", For: "10m", Severity: warning,
				Expr: either(heavy(ttft, attribution.SendQueue, 0.5, 0.001, 20),
					heavy(gap, attribution.SendQueue, 0.5, 0.0002, 50)),
				Summary:     "Tokens of " + here + " wait in the send queue",
				Description: "{{ $value | humanizePercentage }} of the time pass after the engine wrote and before the bytes left.",
			},
			{
				Alert: "VeloAgentUnexplainedHigh", For: "15m", Severity: info,
				Expr:        heavy(ttft, attribution.Unexplained, 0.05, 0, 20),
				Summary:     "The agent cannot explain part of the TTFT of " + here,
				Description: "{{ $value | humanizePercentage }} of the TTFT belong to no stage.",
			},
		},
	)
}

func acceptAlerts() []Rule {
	s := past("5m")
	overflows := s.increase(collectors.AcceptOverflows)
	return []Rule{
		{
			Alert: "VeloAgentAcceptOverflow", Severity: warning,
			Expr:        overflows + " > 0",
			Summary:     "The listener of " + here + " refuses connections",
			Description: "{{ $value | humanize }} connections in five minutes found the accept queue full.",
		},
		{
			Alert: "VeloAgentAcceptOverflowHigh", For: "2m", Severity: critical,
			Expr: fmt.Sprintf("%s / (%s + %s) > 0.01 and %s >= 10",
				overflows, overflows, s.increase(collectors.AcceptArrivals), overflows),
			Summary:     "The listener of " + here + " refuses many connections",
			Description: "{{ $value | humanizePercentage }} of the connections found the accept queue full.",
		},
		{
			Alert: "VeloAgentAcceptQueueNearLimit", For: "2m", Severity: warning,
			Expr: fmt.Sprintf("%s / max without (limit_by) (%s) > 0.8",
				s.series(collectors.AcceptDepth), s.series(collectors.AcceptLimit)),
			Summary:     "The accept queue of " + here + " is nearly full",
			Description: "{{ $value | humanizePercentage }} of the connections that may wait do wait.",
		},
		{
			Alert: "VeloAgentNoFileDescriptors", Severity: critical,
			Expr:        s.increase(collectors.AcceptEMFILE) + " > 0",
			Summary:     "The server on " + here + " has no file descriptor left",
			Description: "{{ $value | humanize }} accepts failed in five minutes.",
		},
	}
}

func hostAlerts() []Rule {
	s := past("5m")
	firsts, laters := s.rate(countOf(collectors.TTFT)), s.rate(countOf(collectors.Gap))
	return []Rule{
		{
			Alert: "VeloAgentCPUThrottled", For: "10m", Severity: warning,
			Expr:        s.rate(collectors.Throttled) + " > 0.05",
			Summary:     "The cgroup of the server on " + here + " is throttled",
			Description: "It is held back for {{ $value | humanizeDuration }} of each second.",
		},
		{
			Alert: "VeloAgentRetransmitsHigh", For: "10m", Severity: warning,
			// A response write with content ends a TTFT or a gap.
			Expr: fmt.Sprintf("%s / (%s + %s or %s) > 0.01 and %s >= 10",
				s.rate(collectors.Retransmits), firsts, laters, firsts, s.increase(collectors.Retransmits)),
			Summary:     "The network loses segments of " + here,
			Description: "{{ $value | humanizePercentage }} of the response writes are sent again.",
		},
	}
}

func agentAlerts() []Rule {
	build := "without (version, revision, go_version)"
	now := past("").series(collectors.BuildInfo)
	return []Rule{
		{
			Alert: "VeloAgentDown", For: "5m", Severity: warning,
			Expr: fmt.Sprintf("group %s (last_over_time(%s[1h])) unless group %s (%s)",
				build, now, build, now),
			Summary:     "The agent of {{ $labels.instance }} is gone",
			Description: "It was scraped within the last hour and is no more.",
		},
		{
			Alert: "VeloAgentAbsent", For: "10m", Severity: warning,
			Expr:        "absent(" + now + ")",
			Summary:     "No agent is scraped",
			Description: "Prometheus knows no agent at all: look at its scrape configuration.",
		},
		{
			Alert: "VeloAgentHelperDown", For: "1m", Severity: warning,
			Expr:        past("").series(collectors.HelperUp) + " == 0",
			Summary:     "The agent of {{ $labels.instance }} sees nothing",
			Description: "Its helper is gone, and the probes with it.",
		},
		{
			Alert: "VeloAgentEventsLost", For: "10m", Severity: warning,
			Expr:        past("5m").grew(collectors.Lost),
			Summary:     "The agent of {{ $labels.instance }} loses events",
			Description: "{{ $value | humanize }} in five minutes: {{ $labels.place }}/{{ $labels.reason }}.",
		},
		{
			Alert: "VeloAgentRecordFailing", For: "1m", Severity: warning,
			Expr:        past("10m").grew(collectors.RecordFailures),
			Summary:     "The agent of {{ $labels.instance }} cannot keep its record",
			Description: "{{ $value | humanize }} snapshots failed: {{ $labels.reason }}.",
		},
		{
			Alert: "VeloAgentReloadRefused", Severity: warning,
			Expr:        past("30m").grew(collectors.Reloads, is("result", "refused")),
			Summary:     "The agent of {{ $labels.instance }} refused its configuration",
			Description: "The old configuration stays in force.",
		},
		{
			Alert: "VeloAgentSeriesFolded", For: "10m", Severity: info,
			Expr:        past("").series(collectors.FoldedSeries) + " > 0",
			Summary:     "The agent of {{ $labels.instance }} folds series",
			Description: "{{ $value | humanize }} label sets of {{ $labels.family }} found no room.",
		},
		{
			Alert: "VeloAgentPortsFolded", Severity: info,
			Expr:        past("1h").grew(collectors.FoldedPorts),
			Summary:     "The agent of {{ $labels.instance }} watches too many ports",
			Description: "{{ $value | humanize }} listening ports are counted as port=\"other\".",
		},
	}
}

// burn alerts on the budget of an objective that is used up too fast, in a short
// window (it goes on) and a long one (it matters).
func burn(name, objective, what string) []Rule {
	rule := func(speed, short, long, wait, severity string, factor float64) Rule {
		ratio := func(window string) string {
			return recorded("port_objective", collectors.ObjectiveMissed, missed+window) + "{" + is("objective", objective) + "}"
		}
		limit := factor * budget
		return Rule{
			Alert: "VeloAgent" + name + "ObjectiveBurn" + speed, For: wait, Severity: severity,
			Expr: fmt.Sprintf("%s > %.3g and %s > %.3g and ignoring (objective) %s >= 20",
				ratio(short), limit, ratio(long), limit, past(short).increase(collectors.Exchanges)),
			Summary:     "Too many exchanges on " + here + " miss the objective of " + what,
			Description: fmt.Sprintf("{{ $value | humanizePercentage }} missed it in the last %s, and more than %.3g %% in the last %s.", short, limit*100, long),
		}
	}
	return []Rule{
		rule("Fast", "5m", "1h", "2m", critical, fastBurn),
		rule("Slow", "30m", "6h", "15m", warning, slowBurn),
	}
}

// heavy is true of a port where a stage takes more than part of the whole and more
// than mean seconds each, of samples or more in five minutes. Its value is the part.
func heavy(s split, stage attribution.Stage, part, mean float64, samples int) string {
	matcher := is("stage", stage.String())
	expr := fmt.Sprintf("%s{%s} > %g", recorded("port_stage", s.stage, share), matcher, part)
	if mean > 0 {
		expr += fmt.Sprintf(" and %s{%s} > %g", recorded("port_stage", s.stage, average), matcher, mean)
	}
	return fmt.Sprintf("%s and ignoring (stage) %s >= %d", expr, past("5m").increase(countOf(s.whole)), samples)
}

func either(a, b string) string { return "(" + a + ") or (" + b + ")" }
