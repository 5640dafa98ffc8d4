// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	defaultWidth = 80
	minWidth     = 80 // the quantiles and the figures of the waterfall need as much
	maxWidth     = 140
)

// Style says how WriteText writes. The zero value is 80 columns of Unicode without
// colours.
type Style struct {
	Color bool // ANSI colours
	ASCII bool // nothing but ASCII: bars of '#', "us" for "µs", '?' for foreign letters
	Width int  // columns; 0 is 80
}

// text is a page being written; the first error stays.
type text struct {
	w     io.Writer
	style Style
	width int
	err   error
}

// WriteText writes the report as a page for people: the verdict first, then where
// the time of each port goes, the findings, and what was not seen.
func WriteText(w io.Writer, r *Report, style Style) error {
	t := &text{w: w, style: style, width: min(max(style.Width, minWidth), maxWidth)}
	if style.Width == 0 {
		t.width = defaultWidth
	}
	r = cleaned(r)
	t.line(t.paint("1", cut(headline(r), t.width)))
	t.line("")
	for _, sentence := range r.Verdict {
		t.item(mark(worst(r)), sentence, worst(r))
	}
	for i := range r.Ports {
		t.port(r, &r.Ports[i])
	}
	t.streams(r)
	t.findings(r)
	t.preconditions(r)
	t.coverage(r)
	t.agent(r)
	if t.err != nil {
		return fmt.Errorf("writing the report as text: %w", t.err)
	}
	return nil
}

func (t *text) port(r *Report, p *PortReport) {
	t.head(portName(p), portCounts(p))
	if where := portWhere(r, p); where != "" {
		t.field("", where)
	}
	for _, d := range []struct {
		name string
		dist *Distribution
	}{{"TTFT", p.TTFT}, {"1st write", p.FirstWrite}, {"gap", p.Gap}} {
		t.quantiles(d.name, d.dist, p)
	}
	if rows := ttftRows(p); len(rows) > 0 {
		t.line("")
		t.waterfall("Where TTFT goes", rows)
	}
	if rows := gapRows(p); len(rows) > 0 {
		t.line("")
		t.waterfall("Where the gaps go", rows)
	}
	t.line("")
	t.field("accept", acceptLine(p.Accept))
	t.field("loss", lossLine(p.Loss))
	for i := range p.Sched {
		name := "sched"
		if i > 0 {
			name = ""
		}
		t.field(name, schedLine(&p.Sched[i], r.WindowS))
	}
	if len(p.Sched) == 0 {
		t.field("sched", "not measured")
	}
}

// quantiles of one distribution. A port that served nothing says so once; the
// first write is told only where it is known.
func (t *text) quantiles(name string, d *Distribution, p *PortReport) {
	if d == nil {
		if name == "TTFT" {
			t.field(name, noSamples(p))
		}
		return
	}
	line := ""
	for _, q := range []struct {
		name string
		v    float64
	}{{"p50", d.P50}, {"p90", d.P90}, {"p99", d.P99}, {"max", d.Max}} {
		line += pad(q.name+" "+seconds(q.v), 14)
	}
	t.line("  " + pad(name, 10) + line + "n " + count(d.Count))
}

func noSamples(p *PortReport) string {
	if p.Exchanges == nil {
		return "not measured"
	}
	return "no response in the window"
}

func (t *text) streams(r *Report) {
	if len(r.Streams) == 0 {
		return
	}
	t.head("Slowest streams", "")
	for i := range r.Streams {
		t.item("-", streamLine(r, &r.Streams[i]), "")
	}
}

func (t *text) findings(r *Report) {
	t.head("Findings", "")
	if len(r.Findings) == 0 {
		t.line("  none")
	}
	for i, f := range r.Findings {
		if i > 0 {
			t.line("")
		}
		t.item(mark(f.Severity), f.Severity+" "+f.ID+": "+f.Title+".", f.Severity)
		for _, e := range f.Evidence {
			t.wrapped("    - ", "      ", e)
		}
		t.wrapped("    "+"→"+" ", "      ", f.Remedy)
		t.wrapped("      ", "      ", f.Docs)
	}
}

func (t *text) preconditions(r *Report) {
	wrong := slices.DeleteFunc(slices.Clone(r.Preconditions), func(p Precondition) bool { return p.State == "ok" || p.State == "not_applicable" })
	if len(wrong) == 0 {
		return
	}
	t.head("Preconditions", "")
	for i := range wrong {
		t.item("-", preconditionLine(&wrong[i]), "")
		if wrong[i].Fix != "" {
			t.wrapped("    "+"→"+" ", "      ", wrong[i].Fix)
		}
	}
}

func (t *text) coverage(r *Report) {
	t.head("Coverage", "")
	if len(r.Coverage) == 0 {
		t.line("  no signal was tried")
	}
	for i, c := range r.Coverage {
		rung := c.Rung
		if c.Missing {
			rung = t.paint("31", "missing")
		}
		if i > 0 && len(c.BetterRefused) > 0 && slices.Equal(c.BetterRefused, r.Coverage[i-1].BetterRefused) {
			t.field2(c.Signal, rung+" (refused: as above)")
			c.BetterRefused = nil
		} else {
			t.field2(c.Signal, rung)
		}
		for _, b := range c.BetterRefused {
			t.wrapped("      not ", "        ", b.Rung+": "+b.Why)
		}
		if c.Note != "" {
			t.wrapped("      ", "      ", c.Note)
		}
	}
}

func (t *text) agent(r *Report) {
	t.head("The agent itself", "")
	t.wrapped("  ", "  ", agentLine(r))
	if line := programsLine(&r.Agent); line != "" {
		t.wrapped("  ", "  ", line)
	}
}

// head begins a section.
func (t *text) head(title, rest string) {
	t.line("")
	if rest != "" && runes(title)+3+runes(rest) <= t.width {
		t.line(t.paint("1", title) + " · " + rest)
		return
	}
	t.line(t.paint("1", cut(title, t.width)))
	if rest != "" {
		t.wrapped("  ", "  ", rest)
	}
}

// field is a named line of a port.
func (t *text) field(name, value string) { t.wrapped("  "+pad(name, 10), pad("", 12), value) }

// field2 is field with a wider name, for signals.
func (t *text) field2(name, value string) { t.wrapped("  "+pad(name, 16)+" ", pad("", 19), value) }

// item is a sentence behind a mark.
func (t *text) item(sign, sentence, severity string) {
	for i, l := range wrap(sentence, t.width-4) {
		if i > 0 {
			sign = " "
		}
		t.line(t.paint(severityColour(severity), sign+" "+l))
	}
}

func (t *text) wrapped(first, next, value string) {
	for i, l := range wrap(value, t.width-runes(first)) {
		if i > 0 {
			first = next
		}
		t.line(first + l)
	}
}

func mark(severity string) string {
	switch severity {
	case Critical:
		return "✖"
	case Warning:
		return "▲"
	}
	return "•"
}

func (t *text) paint(code, s string) string {
	if !t.style.Color || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func severityColour(severity string) string {
	switch severity {
	case Critical:
		return "1;31"
	case Warning:
		return "1;33"
	}
	return ""
}

// worst is the severity of the first finding, which is the worst; "" without one.
func worst(r *Report) string {
	if len(r.Findings) == 0 {
		return ""
	}
	return r.Findings[0].Severity
}

func (t *text) line(s string) {
	if t.err != nil {
		return
	}
	s = strings.TrimRight(s, " ")
	if t.style.ASCII {
		s = ascii(s)
	}
	_, t.err = io.WriteString(t.w, s+"\n")
}

var asciiFor = strings.NewReplacer("µ", "u", "·", "|", "×", "x", "→", ">", "–", "-", "…", "~", "✖", "X", "▲", "!", "•", "*",
	"▏", "|", "▎", "|", "▍", "|", "▌", "#", "▋", "#", "▊", "#", "▉", "#", "█", "#")

// ascii replaces what we write ourselves by its nearest ASCII, of the same width,
// and every other letter by '?'.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r > 0x7e {
			return '?'
		}
		return r
	}, asciiFor.Replace(s))
}
