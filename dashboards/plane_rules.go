// SPDX-License-Identifier: Apache-2.0

package dashboards

// withoutCredit is how many spells without credit come on a data record that was sent.
var withoutCredit = recorded("instance", creditExhausted, missed+"5m")

func planeRecordings() []Rule {
	s := past("5m")
	return []Rule{
		{
			Record: recorded("transport", queueWait, p99),
			Expr:   "histogram_quantile(0.99, " + s.rate(buckets(queueWait)) + ")",
		},
		{
			Record: withoutCredit,
			Expr:   s.rate(creditExhausted) + " / ignoring (record_type) (" + s.rate(recordsSent, is("record_type", "data")) + " > 0)",
		},
	}
}

func planeAlerts() []Rule {
	s := past("5m")
	// With the end of a node some frames are refused in order.
	foreign := isNot("reason", "send_error|drain_.*")
	return []Rule{
		{
			Alert: "VeloAgentPlanePeerLost", Severity: warning,
			// A connection without a stream may go.
			Expr:        "(" + s.grew(epochDeaths) + ") and max_over_time(" + s.series(liveSlots) + "[5m]) > 0",
			Summary:     "{{ $labels.instance }} lost the connection to a peer of the response plane",
			Description: "{{ $value | humanize }} in five minutes. What it was sending over them ended.",
		},
		{
			Alert: "VeloAgentPlaneStreamsGivenUp", Severity: critical,
			Expr:        s.grew(watchdogFirings),
			Summary:     "{{ $labels.instance }} gave up streams of the response plane",
			Description: "{{ $value | humanize }} in five minutes: their peer was silent, or records were lost on the way.",
		},
		{
			Alert: "VeloAgentPlaneCreditExhausted", For: "10m", Severity: warning,
			Expr:        withoutCredit + " > 0.01 and on (instance, job) " + s.rate(creditExhausted) + " > 1",
			Summary:     "The streams of {{ $labels.instance }} wait for their consumers",
			Description: "{{ $value | humanizePercentage }} of the records found no credit.",
		},
		{
			Alert: "VeloAgentPlaneFramesRejected", Severity: warning,
			Expr:        "(" + s.grew(rejections, foreign) + ") or (" + s.grew(malformed) + ")",
			Summary:     "{{ $labels.instance }} is sent what is not of the response plane",
			Description: "{{ $value | humanize }} in five minutes{{ with $labels.reason }}: {{ . }}{{ end }}.",
		},
		{
			Alert: "VeloAgentPlaneInvariantBroken", Severity: critical,
			Expr:        either(past("1h").grew(readerStall), past("1h").grew(creditLost)),
			Summary:     "The response plane of {{ $labels.instance }} has a defect",
			Description: "{{ $value | humanize }} in an hour of what must stay 0: records without room in spite of credit, or credit that was lost.",
		},
		{
			Alert: "VeloAgentPlaneBindsUnclaimed", For: "5m", Severity: info,
			Expr:        past("15m").grew(unclaimedBinds),
			Summary:     "Streams that were offered by {{ $labels.instance }} never began",
			Description: "{{ $value | humanize }} in fifteen minutes.",
		},
	}
}
