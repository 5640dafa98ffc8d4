// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes the report for an issue or a chat.
func WriteMarkdown(w io.Writer, r *Report) error {
	var b strings.Builder
	r = cleaned(r)
	fmt.Fprintf(&b, "# Where the time goes\n\n%s\n\n", escape(headline(r)))
	for _, sentence := range r.Verdict {
		fmt.Fprintf(&b, "- **%s**\n", escape(sentence))
	}
	for i := range r.Ports {
		portMarkdown(&b, r, &r.Ports[i])
	}
	if len(r.Streams) > 0 {
		b.WriteString("\n## Slowest streams\n\n")
		for i := range r.Streams {
			fmt.Fprintf(&b, "- %s\n", escape(streamLine(r, &r.Streams[i])))
		}
	}
	findingsMarkdown(&b, r)
	if len(r.Preconditions) > 0 {
		b.WriteString("\n## Preconditions\n\n")
		for i := range r.Preconditions {
			p := &r.Preconditions[i]
			fmt.Fprintf(&b, "- %s\n", escape(preconditionLine(p)))
			if p.Fix != "" && p.State == "wrong" {
				fmt.Fprintf(&b, "  - Fix: %s\n", escape(p.Fix))
			}
		}
	}
	coverageMarkdown(&b, r)
	fmt.Fprintf(&b, "\n## The agent itself\n\n%s\n", escape(agentLine(r)))
	if line := programsLine(&r.Agent); line != "" {
		fmt.Fprintf(&b, "\n%s\n", escape(line))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the report as Markdown: %w", err)
	}
	return nil
}

func portMarkdown(b *strings.Builder, r *Report, p *PortReport) {
	fmt.Fprintf(b, "\n## %s\n\n", escape(portName(p)))
	for _, line := range []string{portCounts(p), portWhere(r, p)} {
		if line != "" {
			fmt.Fprintf(b, "%s\n\n", escape(line))
		}
	}
	if p.TTFT == nil && p.Gap == nil {
		fmt.Fprintf(b, "TTFT and gaps: %s\n", noSamples(p))
	} else {
		b.WriteString("| | n | p50 | p90 | p99 | max |\n|---|---:|---:|---:|---:|---:|\n")
		distributionMarkdown(b, "TTFT", p.TTFT)
		distributionMarkdown(b, "first write", p.FirstWrite)
		distributionMarkdown(b, "gap", p.Gap)
	}
	stagesMarkdown(b, "Where TTFT goes", ttftRows(p))
	stagesMarkdown(b, "Where the gaps go", gapRows(p))
	fmt.Fprintf(b, "\n- accept queue: %s\n- loss: %s\n", escape(acceptLine(p.Accept)), escape(lossLine(p.Loss)))
	for i := range p.Sched {
		fmt.Fprintf(b, "- threads: %s\n", escape(schedLine(&p.Sched[i], r.WindowS)))
	}
}

func distributionMarkdown(b *strings.Builder, name string, d *Distribution) {
	if d != nil {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", name, count(d.Count),
			escape(seconds(d.P50)), escape(seconds(d.P90)), escape(seconds(d.P99)), escape(seconds(d.Max)))
	}
}

func stagesMarkdown(b *strings.Builder, title string, rows []row) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n| stage | mean | p50 | p99 | share |\n|---|---:|---:|---:|---:|\n", title)
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", escape(r.stage), escape(seconds(r.mean)), escape(optional(r.share.P50)), escape(optional(r.share.P99)), escape(r.percent))
	}
	fmt.Fprintf(b, "| sum | %s | | | 100 %% |\n", seconds(total(rows)))
}

func findingsMarkdown(b *strings.Builder, r *Report) {
	b.WriteString("\n## Findings\n\n")
	if len(r.Findings) == 0 {
		b.WriteString("None.\n")
	}
	for _, f := range r.Findings {
		fmt.Fprintf(b, "- **%s** %s: %s\n", f.Severity, escape(f.ID), escape(f.Title))
		for _, e := range f.Evidence {
			fmt.Fprintf(b, "  - %s\n", escape(e))
		}
		fmt.Fprintf(b, "  - **Remedy**: %s (%s)\n", escape(f.Remedy), escape(f.Docs))
	}
}

func coverageMarkdown(b *strings.Builder, r *Report) {
	b.WriteString("\n## Coverage\n\n| signal | rung | better ones that failed |\n|---|---|---|\n")
	for _, c := range r.Coverage {
		rung := c.Rung
		if c.Missing {
			rung = "missing"
		}
		var failed []string
		for _, x := range c.BetterRefused {
			failed = append(failed, escape(x.Rung+": "+x.Why))
		}
		if c.Note != "" {
			failed = append(failed, escape(c.Note))
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", escape(c.Signal), escape(rung), strings.Join(failed, "<br>"))
	}
}

// markdownEscapes are the characters that Markdown may take for something else than
// themselves within a line; those of HTML become entities.
const markdownEscapes = "\\`*_[]#|~$@"

// escape makes text literal in Markdown, in a table's cell too.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '<':
			b.WriteString("&lt;")
			continue
		case r == '>':
			b.WriteString("&gt;")
			continue
		case r == '&':
			b.WriteString("&amp;")
			continue
		case strings.ContainsRune(markdownEscapes, r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
