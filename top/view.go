// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"strings"
)

const maxErrorLines = 3

// View draws the screen: a title, the body, what went wrong, the state, the keys.
func (m *model) View() string {
	foot := m.foot()
	body := m.body()
	room := m.bodyHeight()
	body = body[:min(len(body), room)]
	for len(body) < room {
		body = append(body, "")
	}
	lines := append([]string{m.paint(bold, m.title())}, append(body, foot...)...)
	lines = lines[:min(len(lines), max(m.height, 1))]
	for i, l := range lines {
		lines[i] = fit(m.plain(l), m.width)
	}
	return strings.Join(lines, "\n")
}

func (m *model) bodyHeight() int { return max(m.height-1-len(m.foot()), 1) }

func (m *model) title() string {
	title := "velo-agent top · "
	switch m.screen {
	case portsScreen:
		return title + m.portsTitle()
	case worstScreen:
		return title + "the worst exchanges since the watch began"
	case portScreen:
		title += fmt.Sprintf("port %d", m.selected.port)
		if m.report != nil && m.twice(m.selected.port) {
			title += fmt.Sprintf(" of network namespace %d", m.selected.netns)
		}
	case coverageScreen:
		title += "coverage"
	case helpScreen:
		title += "help"
	}
	if all, room := len(m.page()), m.bodyHeight(); all > room {
		title += fmt.Sprintf(" · lines %d-%d of %d", m.scroll+1, m.scroll+room, all)
	}
	return title
}

// twice reports whether several network namespaces have the port.
func (m *model) twice(port uint16) bool {
	n := 0
	for i := range m.report.Ports {
		if m.report.Ports[i].Port == port {
			n++
		}
	}
	return n > 1
}

func (m *model) body() []string {
	switch m.screen {
	case portsScreen:
		return m.portsBody()
	case worstScreen:
		return m.worstBody()
	}
	page := m.page()
	return page[min(m.scroll, len(page)):]
}

// sentence is a text of the body that stands alone.
func (m *model) sentence(s string) []string {
	lines := wrap(s, max(m.width-4, 20))
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

func (m *model) nothingYet() []string {
	return m.sentence(fmt.Sprintf("Measuring: the first window ends in %v.", m.Interval))
}

func (m *model) foot() []string {
	var lines []string
	if m.err != nil {
		text := fmt.Sprintf("! %s; trying again every %v", harmless(m.err.Error()), m.Interval)
		for _, l := range wrap(text, max(m.width, 20)) {
			lines = append(lines, m.paint(red, l))
		}
		if len(lines) > maxErrorLines {
			lines = append(lines[:maxErrorLines-1], m.paint(red, "… `velo-agent probes` says what is to be had on this node"))
		}
	}
	return append(lines, m.status(), m.paint(grey, m.hints()))
}

// status says of which window the figures are, and how far they can be trusted, the
// most important first: a narrow terminal cuts the end.
func (m *model) status() string {
	var parts []string
	if m.paused {
		parts = append(parts, "PAUSED, p goes on")
	}
	r := m.report
	if r == nil {
		return strings.Join(append(parts, fmt.Sprintf("every %v", m.Interval)), " · ")
	}
	parts = append(parts, fmt.Sprintf("window %s at %s", span(r.WindowS, 3), m.at.Format("15:04:05")))
	missing := 0
	for _, c := range r.Coverage {
		if c.Missing {
			missing++
		}
	}
	switch {
	case missing == 1:
		parts = append(parts, m.paint(yellow, "1 signal missing: press c"))
	case missing > 1:
		parts = append(parts, m.paint(yellow, fmt.Sprintf("%d signals missing: press c", missing)))
	}
	parts = append(parts, cmp.Or(r.Node.Hostname, "node "+absent), "agent "+cmp.Or(r.Node.AgentVersion, absent))
	return strings.Join(parts, " · ")
}

func (m *model) hints() string {
	if m.typing {
		return "type a part of a port, process or engine"
	}
	switch m.screen {
	case portsScreen:
		return hints(keyEnter, keyTab, keyFilter, keyRight, keyReverse, keyPause, keyHelp, keyQuit)
	case worstScreen:
		return "up/down choose  tab ports  " + hints(keyEnter, keyPause, keyHelp, keyQuit)
	}
	return "up/down scroll  " + hints(keyEsc, keyTab, keyPause, keyHelp, keyQuit)
}
