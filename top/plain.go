// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"io"
	"strings"

	"github.com/velo-agent/velo-agent/diagnosis"
)

// WriteText writes one window as text: every port, the worst exchanges, and the
// titles of the findings. Of o it heeds Color, ASCII and Width.
func WriteText(w io.Writer, r *diagnosis.Report, o Options) error {
	m := newModel(nil, o.withDefaults(), nil)
	m.report = r
	m.height = headLines + len(r.Ports) + streamLines*len(r.Streams) + usualHeight // room for all
	m.settle()
	m.selected = id{} // nothing is
	m.stream = -1
	lines := append([]string{m.summary(), ""}, m.portsBody()...)
	if len(r.Streams) > 0 {
		lines = append(lines, "", m.paint(bold, "The worst exchanges"))
		lines = append(lines, m.worstBody()...)
	}
	if len(r.Findings) > 0 {
		lines = append(lines, "", m.paint(bold, "Findings")+" (`velo-agent diagnose` gives evidence and remedy)")
	}
	for _, f := range r.Findings {
		for i, l := range wrap(f.Severity+": "+f.Title, max(m.width-2, 20)) {
			lines = append(lines, m.paint(severityColour(f.Severity), []string{"- ", "  "}[min(i, 1)]+l))
		}
	}
	for i, l := range lines {
		lines[i] = fit(m.plain(l), m.width)
	}
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("writing the window: %w", err)
	}
	return nil
}

// summary is the status without what a page cannot do.
func (m *model) summary() string {
	n := m.report.Node
	return fmt.Sprintf("velo-agent %s · window %s · %s", n.AgentVersion, span(m.report.WindowS, 3), n.Hostname)
}
