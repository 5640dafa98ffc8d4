// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"github.com/velo-agent/velo-agent/collectors"
)

// node is the first look: which port of which node is slow, and whose fault it is.
func node() board {
	return board{
		name: "node", title: "velo-agent: node overview", perPort: true,
		description: "Which port of which node is slow, and by which stage.",
		rows: []row{
			{"Ports", []panel{portsTable()}},
			{"Latency", []panel{
				quantiles("TTFT", collectors.TTFT, "ttft",
					"Above the objective? The dashboard of stages says where the time went."),
				quantiles("Gaps", collectors.Gap, "gap",
					"A p99 far above the p50 is a stream that stands still now and then: look for engine stalls and slow readers."),
			}},
			{"Traffic and findings", []panel{
				{
					title: "Exchanges", width: 8, height: 8, draw: lines(rateUnit(collectors.Exchanges)),
					advice:  "Compare with what the engine itself counts: a difference is a request that never reached it, or an answer that nobody read.",
					targets: []target{{expr: shown.total(port, collectors.Exchanges), legend: of}},
				},
				{
					title: "Connections", width: 8, height: 8, draw: lines(rateUnit(collectors.Connections)),
					advice:  "As many connections as exchanges means that clients do not keep them open: each request waits to be accepted.",
					targets: []target{{expr: shown.total(port, collectors.Connections), legend: of}},
				},
				listing("Findings now", "Ask the node for evidence and remedy: velo-agent diagnose.", 8, 8,
					[]string{"instance", "severity", "id", "netns", "port"},
					shown.highest([]string{"instance", "severity", "id", "netns", "port"}, collectors.Findings)+" > 0"),
			}},
			{"Accept queue and agent", []panel{
				{
					title: "Accept depth and limit", width: 12, height: 8, draw: lines(unit(collectors.AcceptDepth)),
					advice: "A depth that nears the limit ends in refused connections: raise what limit_by names, or accept faster.",
					targets: []target{
						{expr: shown.current(port, collectors.AcceptDepth), legend: "depth " + of},
						{expr: shown.highest(with(port, "limit_by"), collectors.AcceptLimit), legend: "limit by {{limit_by}} " + of},
					},
				},
				helper(6, 8),
				{
					title: "Lost events", width: 6, height: 8, draw: lines(rateUnit(collectors.Lost)),
					advice:  "Anything above 0 makes the figures too low by as much. The dashboard of the agent says where and why.",
					targets: []target{{expr: shown.total([]string{"instance"}, collectors.Lost), legend: "{{instance}}"}},
				},
			}},
		},
	}
}

// portsTable is a row for each port, over the whole time range.
func portsTable() panel {
	guilty := with(port, "stage")
	draw, targets := grid(with(port, "stage"),
		column{"Exchanges/s", rateUnit(collectors.Exchanges), ranged.total(port, collectors.Exchanges)},
		column{"TTFT p50", unit(collectors.TTFT), ranged.quantile("0.5", port, collectors.TTFT)},
		column{"TTFT p99", unit(collectors.TTFT), ranged.quantile("0.99", port, collectors.TTFT)},
		column{"Gap p99", unit(collectors.Gap), ranged.quantile("0.99", port, collectors.Gap)},
		column{"TTFT within objective", units.PercentUnit, ranged.within("ttft", port)},
		column{"Gaps within objective", units.PercentUnit, ranged.within("gap", port)},
		column{"", "", "topk by (instance, netns, port, model) (1, " + ranged.total(guilty, collectors.ObjectiveMissed) + " > 0)"},
		column{"Findings", unit(collectors.Findings), ranged.current([]string{"instance", "netns", "port"}, collectors.Findings)},
	)
	return panel{
		title: "Ports", width: 24, height: 9, draw: draw, targets: targets,
		advice: "Begin with the port with the lowest share within its objectives. Its stage is the one that most missed objectives are laid to; empty where none was missed.",
	}
}

// quantiles draws p50, p90 and p99 of a histogram by port, and its objective.
func quantiles(title string, f collectors.Family, objective, advice string) panel {
	p := panel{title: title, advice: advice, width: 12, height: 9, draw: lines(unit(f))}
	for _, q := range []string{"0.5", "0.9", "0.99"} {
		p.targets = append(p.targets, target{expr: shown.quantile(q, port, f), legend: percent(q) + " " + of, exemplars: q == "0.99"})
	}
	p.targets = append(p.targets, target{
		expr: shown.highest(nil, collectors.Objective, is("objective", objective)), legend: "objective",
	})
	return p
}

// helper says whether the helper of each node serves.
func helper(width, height uint32) panel {
	return panel{
		title: "Helper", width: width, height: height, draw: upOrDown(),
		advice:  "Down: the probes are gone, and what comes from them stands still. See the agent's log, and restart it.",
		targets: []target{{expr: shown.highest([]string{"instance"}, collectors.HelperUp), legend: "{{instance}}", now: true}},
	}
}
