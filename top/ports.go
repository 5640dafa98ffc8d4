// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/velo-agent/velo-agent/diagnosis"
)

const (
	headLines = 2  // above the rows of the table
	maxFilter = 64 // no name is longer
)

func (m *model) portsKey(msg tea.KeyMsg) {
	switch {
	case key.Matches(msg, keyEnter.Binding):
		if m.index() >= 0 {
			m.chosen = true
			m.open(portScreen)
		}
	case key.Matches(msg, keyFilter.Binding):
		m.typing = true
	case key.Matches(msg, keyLeft.Binding):
		m.sortBy(m.sort + len(columns) - 1)
	case key.Matches(msg, keyRight.Binding):
		m.sortBy(m.sort + 1)
	case key.Matches(msg, keyColumn.Binding):
		m.sortBy(slices.Index(keyColumn.Keys(), msg.String()))
	case key.Matches(msg, keyReverse.Binding):
		m.reversed = !m.reversed
	default:
		now := m.index()
		if i := max(min(moved(msg, now, m.tableHeight()), len(m.rows)-1), 0); i != now && len(m.rows) > 0 {
			m.selected, m.chosen = m.rows[i].id(), true
		}
		if key.Matches(msg, keyHome.Binding) {
			m.chosen = false
		}
	}
}

func (m *model) sortBy(column int) {
	m.sort, m.reversed = column%len(columns), false
}

// typed takes a key while the filter is being typed.
func (m *model) typed(msg tea.KeyMsg) {
	switch msg.Type {
	case tea.KeyEnter:
		m.typing = false
	case tea.KeyEsc:
		m.typing, m.filter = false, ""
	case tea.KeyBackspace:
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	case tea.KeyCtrlU:
		m.filter = ""
	case tea.KeyRunes, tea.KeySpace:
		for _, r := range msg.Runes {
			if unicode.IsPrint(r) && len(m.filter) < maxFilter {
				m.filter += string(r)
			}
		}
	}
}

// passes reports whether the filter lets a row through.
func (m *model) passes(r *row) bool {
	return strings.Contains(strings.ToLower(strconv.Itoa(int(r.Port))+" "+r.name()), strings.ToLower(m.filter))
}

// settlePorts filters and sorts the rows, and keeps a row selected and in sight.
func (m *model) settlePorts() {
	m.rows = nil
	if m.report != nil {
		m.rows = slices.DeleteFunc(rowsOf(m.report), func(r row) bool { return !m.passes(&r) })
	}
	order(m.rows, &columns[m.sort], m.reversed)
	i := m.index()
	if i < 0 || !m.chosen {
		i, m.chosen = 0, m.chosen && m.screen != portsScreen
		if len(m.rows) > 0 && !m.chosen {
			m.selected = m.rows[0].id()
		}
	}
	page := m.tableHeight()
	m.at1st = max(min(m.at1st, i, len(m.rows)-page), i-page+1, 0)
}

// index of the selected row, or -1.
func (m *model) index() int {
	return slices.IndexFunc(m.rows, func(r row) bool { return r.id() == m.selected })
}

func (m *model) tableHeight() int { return max(m.bodyHeight()-headLines, 1) }

func (m *model) portsTitle() string {
	all := 0
	if m.report != nil {
		all = len(m.report.Ports)
	}
	title := fmt.Sprintf("ports %d", all)
	if m.filter != "" || m.typing {
		title = fmt.Sprintf("ports %d of %d · filter %q", len(m.rows), all, m.filter)
	}
	if m.typing {
		return title + " · enter keeps it, esc drops it"
	}
	return title + " · " + describeOrder(&columns[m.sort], m.reversed)
}

func (m *model) portsBody() []string {
	switch {
	case m.report == nil:
		return m.nothingYet()
	case len(m.report.Ports) == 0:
		return m.sentence("No port is watched: no serving engine that listens was found. Start one, or name a port: velo-agent top --port 8000")
	case len(m.rows) == 0:
		return m.sentence("No port, process or engine holds what the filter says: press / to change it, esc to drop it.")
	}
	lines := m.head()
	for i := m.at1st; i < min(m.at1st+m.tableHeight(), len(m.rows)); i++ {
		lines = append(lines, m.line(&m.rows[i], m.rows[i].id() == m.selected))
	}
	return lines
}

// widths of the columns: the one that has none gets what the others leave.
func (m *model) widths() []int {
	widths := make([]int, len(columns))
	rest, free := m.width-1-(len(columns)-1), 0
	for i, c := range columns {
		if widths[i] = c.narrow; m.width >= wideFrom {
			widths[i] = c.wide
		}
		if rest -= widths[i]; widths[i] == 0 {
			free = i
		}
	}
	widths[free] = min(max(rest, 8), 60)
	return widths
}

func (m *model) head() []string {
	var groups, heads []string
	for i, w := range m.widths() {
		c := &columns[i]
		groups = append(groups, cell(c.group, w, c.right))
		head := c.head
		if i == m.sort {
			arrow := "▼"
			if c.ascending != m.reversed {
				arrow = "▲"
			}
			head = fit(head, w-1) + arrow
		}
		heads = append(heads, cell(head, w, c.right))
	}
	return []string{
		strings.TrimRight(" "+strings.Join(groups, " "), " "),
		m.paint(bold, strings.TrimRight(" "+strings.Join(heads, " "), " ")),
	}
}

func (m *model) line(r *row, selected bool) string {
	var cells []string
	for i, w := range m.widths() {
		c := &columns[i]
		s := cell(m.plain(c.text(r, w)), w, c.right)
		if !selected {
			s = m.paint(cellColour(c, r), s)
		}
		cells = append(cells, s)
	}
	line := strings.TrimRight(strings.Join(cells, " "), " ")
	if selected {
		return m.paint(reverse, ">"+line)
	}
	return " " + line
}

// cellColour marks what is to be seen first: the host's stages, and bad findings.
func cellColour(c *column, r *row) string {
	switch c.name {
	case "main stage":
		return stageColour(r.stage)
	case "findings":
		if len(r.findings) > 0 {
			return severityColour(r.findings[0].Severity)
		}
	}
	return ""
}

func severityColour(severity string) string {
	switch severity {
	case diagnosis.Critical:
		return red
	case diagnosis.Warning:
		return yellow
	}
	return ""
}

// stageColour tells the host's stages from the engine's.
func stageColour(stage string) string {
	switch stage {
	case "", "engine":
		return blue
	case "unexplained":
		return grey
	}
	return yellow
}
