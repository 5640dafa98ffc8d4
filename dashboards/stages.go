// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/collectors"
)

// split is a histogram and its partition into stages, in the order of time.
type split struct {
	name, objective string
	whole, stage    collectors.Family
	stages          []attribution.Stage
}

var (
	ttft = split{"TTFT", "ttft", collectors.TTFT, collectors.TTFTStage, []attribution.Stage{
		attribution.AcceptWait, attribution.WakeToRun, attribution.RuntimeHandoff, attribution.Reader,
		attribution.Engine, attribution.SendQueue, attribution.Unexplained,
	}}
	gap = split{"Gap", "gap", collectors.Gap, collectors.GapStage, []attribution.Stage{
		attribution.Engine, attribution.SendQueue,
	}}
)

// stages is where the time went.
func stages() board {
	return board{
		name: "stages", title: "velo-agent: stages and waterfall", perPort: true,
		description: "Where the time of the chosen ports went, stage by stage.",
		rows: []row{
			{"TTFT", ttft.panels()},
			{"Gaps", gap.panels()},
			{"First write", []panel{{
				title: "First write and TTFT", width: 24, height: 8, draw: lines(unit(collectors.FirstWrite)),
				advice: "A first write long before the TTFT is a server that sends its headers at once and computes then.",
				targets: []target{
					{expr: shown.quantile("0.5", nil, collectors.FirstWrite), legend: "first write p50"},
					{expr: shown.quantile("0.5", nil, collectors.TTFT), legend: "TTFT p50"},
					{expr: shown.quantile("0.99", nil, collectors.FirstWrite), legend: "first write p99"},
					{expr: shown.quantile("0.99", nil, collectors.TTFT), legend: "TTFT p99"},
				},
			}}},
		},
	}
}

func (s split) panels() []panel {
	seconds := unit(s.whole)
	time := func(st string) string { return shown.total(nil, sumOf(s.stage), is("stage", st)) }
	mean := func(st string) string { return ratio(time(st), shown.total(nil, countOf(s.whole))) }
	waterfall := s.each(func(st string) string {
		return ratio(ranged.total(nil, sumOf(s.stage), is("stage", st)), ranged.total(nil, countOf(s.whole)))
	})
	for i := range waterfall {
		waterfall[i].now = true
	}
	return []panel{
		{
			title: s.name + ": mean of each stage", width: 12, height: 9, draw: bars(seconds), targets: waterfall,
			advice: "The bars stand in the order of time, over the whole time range, and add up to the mean of the whole. Begin with the longest that is not engine: the page of that stage names its remedies.",
		},
		{
			title: s.name + ": mean over time, stage upon stage", width: 12, height: 9, draw: layers(seconds), targets: s.each(mean),
			advice: "The upper edge is the mean of the whole. A layer that grew when users began to complain is the one to look at.",
		},
		{
			title: s.name + ": share of each stage", width: 12, height: 9, draw: shares(), targets: s.each(time),
			advice: "What part of all time each stage took. A healthy server is nearly all engine.",
		},
		{
			title: s.name + ": p99 of each stage", width: 12, height: 9, draw: lines(seconds),
			targets: s.each(func(st string) string { return shown.quantile("0.99", nil, s.stage, is("stage", st)) }),
			advice:  "The slowest hundredth of each stage. These do not add up: the slow ones of two stages are seldom the same exchange.",
		},
		{
			title: s.name + ": p50 of each stage", width: 12, height: 9, draw: lines(seconds),
			targets: s.each(func(st string) string { return shown.quantile("0.5", nil, s.stage, is("stage", st)) }),
			advice:  "The ordinary exchange. A stage that is long here is long for everybody.",
		},
		{
			title: s.name + ": objectives missed by guilty stage", width: 12, height: 9, draw: layers(rateUnit(collectors.ObjectiveMissed)),
			targets: []target{{
				expr:   shown.total([]string{"stage"}, collectors.ObjectiveMissed, is("objective", s.objective)),
				legend: "{{stage}}",
			}},
			advice: "Each missed objective is laid to the stage that took most of it. If that is engine, more or faster GPUs help; if it is another, they do not.",
		},
		{
			title: s.name + ": within the objective", width: 12, height: 9, draw: lines(units.PercentUnit).Max(1),
			targets: []target{{expr: shown.within(s.objective, port), legend: of}},
			advice:  "The share of exchanges that met the objective of the configuration. The alerts on burn rates watch it.",
		},
		{
			title: s.name + ": heatmap", width: 12, height: 9, draw: cells(seconds),
			targets: []target{{
				expr: shown.total([]string{"le"}, buckets(s.whole)), legend: "{{le}}", format: prometheus.PromQueryFormatHeatmap,
			}},
			advice: "Two bands are two kinds of requests, or a cache that is hit and missed; a rising band is a queue.",
		},
	}
}

// each makes a query for each stage, in order.
func (s split) each(expr func(stage string) string) []target {
	var targets []target
	for _, st := range s.stages {
		targets = append(targets, target{expr: expr(st.String()), legend: st.String()})
	}
	return targets
}
