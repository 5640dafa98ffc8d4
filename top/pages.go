// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/velo-agent/velo-agent/diagnosis"
)

// page is the whole text of a screen that scrolls; nil for the others.
func (m *model) page() []string {
	switch m.screen {
	case portScreen:
		return m.portPage()
	case coverageScreen:
		return m.coveragePage()
	case helpScreen:
		return m.helpPage()
	}
	return nil
}

// portPage is what `diagnose` prints of one port, with its streams and findings.
func (m *model) portPage() []string {
	if m.report == nil {
		return m.nothingYet()
	}
	i := slices.IndexFunc(m.report.Ports, func(p diagnosis.PortReport) bool { return id{p.Port, p.NetNS} == m.selected })
	if i < 0 {
		return m.sentence(fmt.Sprintf("Port %d is no longer watched: press esc.", m.selected.port))
	}
	one := *m.report
	one.Ports = one.Ports[i : i+1]
	one.Streams = slices.DeleteFunc(slices.Clone(one.Streams), func(s diagnosis.StreamReport) bool { return id{s.Port, s.NetNS} != m.selected })
	one.Findings = slices.DeleteFunc(slices.Clone(one.Findings), func(f diagnosis.Finding) bool { return id{f.Port, f.NetNS} != m.selected })
	one.Preconditions = nil
	lines := m.written(&one)
	if i := slices.IndexFunc(lines, func(l string) bool { return l == m.paint(bold, coverageHead) }); i >= 0 {
		lines = lines[:i]
	}
	return lines
}

// coverageHead is where WriteText begins to speak of the node instead of its ports.
const coverageHead = "Coverage"

// coveragePage is what `diagnose` prints of the node.
func (m *model) coveragePage() []string {
	if m.report == nil {
		return m.nothingYet()
	}
	node := *m.report
	node.Ports, node.Streams = nil, nil
	node.Findings = slices.DeleteFunc(slices.Clone(node.Findings), func(f diagnosis.Finding) bool { return f.Port != 0 })
	return m.written(&node)
}

// written is a report as WriteText has it, without the verdict and the headline.
func (m *model) written(r *diagnosis.Report) []string {
	r.Verdict = nil
	var b strings.Builder
	// A builder takes all that is written.
	_ = diagnosis.WriteText(&b, r, diagnosis.Style{Color: m.Color, ASCII: m.ASCII, Width: m.width})
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")[1:]
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	return lines
}

func (m *model) helpPage() []string {
	lines := []string{m.paint(bold, "Keys")}
	lines = append(lines, strings.Split(strings.TrimRight(KeysHelp(), "\n"), "\n")...)
	lines = append(lines, "", m.paint(bold, "Columns"))
	for _, c := range []struct{ name, means string }{
		{"conn", "connections that the window added"},
		{"ex/s", "exchanges a second: a request and its response, inferred"},
		{"TTFT", "last request byte arrived to first content left: median, 99 of 100"},
		{"gap", "between two successive records of a response"},
		{"main stage", "where most of TTFT went, or of the gaps where that is not known"},
		{"accept", "depth of the accept queue, and its limit"},
		{"!", "findings; open the port to read them with their remedy"},
		{absent, "not measured, or nothing to measure in the window; it is not 0"},
	} {
		lines = append(lines, "   "+cell(c.name, 11, false)+c.means)
	}
	return append(lines, "", "   Figures are those of the last window. The worst exchanges are those since",
		"   the watch began.")
}
