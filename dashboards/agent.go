// SPDX-License-Identifier: Apache-2.0

package dashboards

import "github.com/velo-agent/velo-agent/collectors"

// agent is the agent itself: what it can see, what it costs, what it lost.
func agent() board {
	return board{
		name: "agent", title: "velo-agent: the agent itself",
		description: "What the agent can see on this kernel, what it costs, and what it lost.",
		rows: []row{
			{"State", statePanels()},
			{"Signals", signalPanels()},
			{"Cost", costPanels()},
			{"Limits", limitPanels()},
			{"Record and configuration", recordPanels()},
		},
	}
}

func statePanels() []panel {
	build := []string{"instance", "version", "revision", "go_version"}
	return []panel{
		helper(6, 6),
		single("Watched ports", collectors.WatchedPorts, "0 where an engine runs: the agent cannot see it, see its log."),
		listing("Build", "Nodes of one cluster should run one version.", 12, 6, build, shown.highest(build, collectors.BuildInfo)),
	}
}

func signalPanels() []panel {
	rungs := []string{"instance", "signal", "rung"}
	refused := with(rungs, "reason")
	return []panel{
		listing("Rung of each signal", "none: what that signal tells is missing, and the report's coverage says so.", 10, 10,
			rungs, shown.highest(rungs, collectors.SignalRung)+" == 1"),
		listing("Better rungs that were refused", "The reason names the remedy: a newer kernel, a capability, or BTF.", 14, 10,
			refused, shown.highest(refused, collectors.SignalRefused)+" == 1"),
	}
}

func costPanels() []panel {
	program := []string{"instance", "program"}
	return []panel{
		own("Program runs", collectors.ProgramRuns, 12, "What is counted in the one second of sixty that is looked at, spread over all sixty.", "program"),
		{
			title: "Time of a program's run", width: 12, height: 8, draw: lines(unit(collectors.ProgramSeconds)),
			advice: "Some 50 to 300 ns are usual. Times the runs it is what the node pays.",
			targets: []target{{
				expr:   ratio(shown.total(program, collectors.ProgramSeconds), shown.total(program, collectors.ProgramRuns)),
				legend: "{{instance}} {{program}}",
			}},
		},
		own("CPU", collectors.CPU, 12, "100 % is one CPU. Idle, the agent should stay below 0.3 %.", "part"),
		{
			title: "Memory", width: 12, height: 8, draw: layers(unit(collectors.Memory)),
			advice:  "It is bounded by the ports and connections that are watched; what grows without them is a defect worth reporting.",
			targets: []target{{expr: shown.current([]string{"instance", "part"}, collectors.Memory), legend: "{{instance}} {{part}}"}},
		},
	}
}

func limitPanels() []panel {
	table := []string{"instance", "map"}
	return []panel{
		{
			title: "Fill of tables", width: 12, height: 10, draw: filling(),
			advice: "What finds no room is lost and counted. Where a table stays near full, watch fewer ports of this node.",
			targets: []target{{
				expr:   ratio(shown.current(table, collectors.MapEntries), shown.current(table, collectors.MapCapacity)),
				legend: "{{instance}} {{map}}", now: true,
			}},
		},
		own("Lost", collectors.Lost, 12, "Each place and reason is explained on the page. The figures are too low by as much.", "place", "reason"),
		{
			title: "Folded series", width: 12, height: 8, draw: lines(unit(collectors.FoldedSeries)),
			advice:  "Sums stay right, details are lost. Watch fewer ports.",
			targets: []target{{expr: shown.current([]string{"instance", "family"}, collectors.FoldedSeries), legend: "{{instance}} {{family}}"}},
		},
		own("Folded ports", collectors.FoldedPorts, 12, "Name the ports that matter under watch in the configuration, and switch the search for engines off."),
	}
}

func recordPanels() []panel {
	return []panel{
		single("Snapshots in the record", collectors.RecordSnapshots, "A day of one every ten seconds is 8,640."),
		single("Size of the record", collectors.RecordBytes, "It stays below the limit of the configuration; the oldest snapshots go first."),
		age("The record goes back", collectors.RecordOldest, "How far back diagnose --at can look."),
		age("Configuration in force since", collectors.ConfigLoaded, "A change of the file counts from the next reload on."),
		own("Record failures", collectors.RecordFailures, 12, "disk_full and write: look at the disk. damaged: a snapshot was cut short by a crash and is left out.", "reason"),
		own("Reloads", collectors.Reloads, 12, "Refused: the old configuration stays in force. velo-agent config check says why.", "result"),
	}
}

// own draws the rate of one of the agent's own counters.
func own(title string, f collectors.Family, width uint32, advice string, by ...string) panel {
	legend := "{{instance}}"
	for _, label := range by {
		legend += " {{" + label + "}}"
	}
	return panel{
		title: title, advice: advice, width: width, height: 8, draw: lines(rateUnit(f)),
		targets: []target{{expr: shown.total(with([]string{"instance"}, by...), f), legend: legend}},
	}
}

// single draws the value of a gauge.
func single(title string, f collectors.Family, advice string) panel {
	return panel{
		title: title, advice: advice, width: 6, height: 6, draw: number(unit(f)),
		targets: []target{{expr: shown.highest([]string{"instance"}, f), legend: "{{instance}}", now: true}},
	}
}

// age draws how long ago a point in time was.
func age(title string, f collectors.Family, advice string) panel {
	p := single(title, f, advice)
	p.targets[0].expr = "time() - " + p.targets[0].expr
	return p
}
