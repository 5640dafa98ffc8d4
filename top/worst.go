// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// streamLines is how many lines one stream takes: its name, TTFT, gap, a blank one.
const streamLines = 4

func (m *model) worstKey(msg tea.KeyMsg) {
	if m.report == nil || len(m.report.Streams) == 0 {
		return
	}
	if !key.Matches(msg, keyEnter.Binding) {
		m.stream = moved(msg, m.stream, len(m.report.Streams))
		return
	}
	if s := &m.report.Streams[m.stream]; m.portOf(s) != nil {
		m.selected, m.chosen = id{s.Port, s.NetNS}, true
		m.open(portScreen)
	}
}

func (m *model) worstBody() []string {
	switch {
	case m.report == nil:
		return m.nothingYet()
	case m.report.Streams == nil:
		return m.sentence("Exchanges are not followed one by one here: press c to see which signal is missing.")
	case len(m.report.Streams) == 0:
		return m.sentence("No exchange was seen yet.")
	}
	legend, height := m.sentence(legendText()), m.bodyHeight()
	lines := []string{}
	for i := range m.report.Streams {
		lines = append(lines, m.streamLines(&m.report.Streams[i], i == m.stream)...)
	}
	room := max(height-len(legend), streamLines)
	first := max(min(m.stream*streamLines, len(lines)-room), 0)
	return append(lines[first:min(first+room, len(lines))], legend...)
}

func (m *model) streamLines(s *diagnosis.StreamReport, selected bool) []string {
	process := absent
	if p := m.portOf(s); p != nil {
		process = p.name()
	}
	name := fmt.Sprintf(" :%d %s  %s", s.Port, process, s.ID)
	if m.twice(s.Port) {
		name += fmt.Sprintf("  network namespace %d", s.NetNS)
	}
	if selected {
		name = m.paint(reverse, ">"+name[1:])
	} else {
		name = m.paint(bold, name)
	}
	return []string{
		name,
		m.splitLine("TTFT", s.TTFT, s.Stages),
		m.splitLine("worst gap", s.WorstGap, s.GapStages),
		"",
	}
}

// portOf is the port of a stream, or nil: it may be watched no longer.
func (m *model) portOf(s *diagnosis.StreamReport) *row {
	for i := range m.report.Ports {
		if p := (&row{PortReport: &m.report.Ports[i]}); p.id() == (id{s.Port, s.NetNS}) {
			return p
		}
	}
	return nil
}

// splitLine is a duration, its stages as a bar of letters, and the largest in words.
func (m *model) splitLine(name string, whole float64, stages map[string]float64) string {
	if whole == 0 {
		return "   " + cell(name, 10, false) + cell(absent, 6, true)
	}
	bar := min(max(m.width/4, 10), 40)
	return "   " + cell(name, 10, false) + cell(span(whole, 3), 6, true) + "  " + m.split(stages, bar) + "  " + largest(stages, whole)
}

// split draws each stage with its letter on so many columns.
func (m *model) split(stages map[string]float64, width int) string {
	total := 0.0
	for _, s := range stages {
		total += s
	}
	if total <= 0 {
		return strings.Repeat(" ", width)
	}
	var bar strings.Builder
	drawn, until := 0, 0.0
	for s := range attribution.NumStages {
		until += stages[s.String()]
		n := int(math.Round(until / total * float64(width)))
		bar.WriteString(m.paint(stageColour(s.String()), strings.Repeat(letter(s), max(n-drawn, 0))))
		drawn = max(n, drawn)
	}
	bar.WriteString(strings.Repeat(" ", max(width-drawn, 0)))
	return bar.String()
}

// letter of a stage in a bar: its first one, which is its own but for one.
func letter(s attribution.Stage) string {
	switch s {
	case attribution.RuntimeHandoff:
		return "H"
	case attribution.Unexplained:
		return "?"
	}
	return strings.ToUpper(s.String()[:1])
}

func legendText() string {
	var parts []string
	for s := range attribution.NumStages {
		parts = append(parts, letter(s)+" "+s.String())
	}
	return strings.Join(parts, "  ")
}

// largest names the stages that take a hundredth or more, the largest first.
func largest(stages map[string]float64, whole float64) string {
	names := slices.SortedFunc(maps.Keys(stages), func(a, b string) int {
		return cmp.Or(cmp.Compare(stages[b], stages[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, n := range names {
		if stages[n] >= whole/100 {
			parts = append(parts, n+" "+span(stages[n], 3))
		}
	}
	return strings.Join(parts, ", ")
}
