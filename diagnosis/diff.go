// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// DiffSchema names the form of a Diff in JSON.
const DiffSchema = "velo-agent.diff.v1"

// Diff sets two windows beside each other. Times are seconds; a figure that one of
// the windows does not have is left out.
type Diff struct {
	Schema string     `json:"schema"`
	A      Span       `json:"a"`
	B      Span       `json:"b"`
	Ports  []PortDiff `json:"ports"`
	New    []Finding  `json:"new_findings"`  // of B alone
	Gone   []Finding  `json:"gone_findings"` // of A alone
}

// Span is one of the windows.
type Span struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	WindowS float64   `json:"window_s"` // of which there are snapshots
}

// PortDiff is one port in both windows.
type PortDiff struct {
	Port    uint16    `json:"port"`
	NetNS   uint64    `json:"netns,omitempty"`
	Process string    `json:"process,omitempty"`
	Figures []Figures `json:"figures"`
}

// Figures is one figure in both windows.
type Figures struct {
	Name string   `json:"name"`
	Unit string   `json:"unit"` // "seconds" or "count"
	A    *float64 `json:"a,omitempty"`
	B    *float64 `json:"b,omitempty"`
}

// Compare sets a and b beside each other.
func Compare(a, b *Measured, spanA, spanB Span) *Diff {
	spanA.WindowS, spanB.WindowS = a.Window.Seconds(), b.Window.Seconds()
	d := &Diff{Schema: DiffSchema, A: spanA, B: spanB, Ports: []PortDiff{}}
	for i := range b.Ports {
		p := &b.Ports[i]
		before := a.Find(p, i)
		if before == nil {
			before = &Port{}
		}
		d.Ports = append(d.Ports, diffOf(before, p))
	}
	for i := range a.Ports {
		if p := &a.Ports[i]; b.Find(p, i) == nil {
			d.Ports = append(d.Ports, diffOf(p, &Port{Port: p.Port, NetNS: p.NetNS, Process: p.Process}))
		}
	}
	ra, rb := cleaned(Build(a)), cleaned(Build(b))
	d.New, d.Gone = without(rb.Findings, ra.Findings), without(ra.Findings, rb.Findings)
	return d
}

func without(list, other []Finding) []Finding {
	out := []Finding{}
	for _, f := range list {
		if !slices.ContainsFunc(other, func(o Finding) bool { return o.ID == f.ID && o.Port == f.Port && o.NetNS == f.NetNS }) {
			out = append(out, f)
		}
	}
	return out
}

func diffOf(a, b *Port) PortDiff {
	d := PortDiff{Port: b.Port, NetNS: b.NetNS, Process: clean(b.Process)}
	add := func(name, unit string, x, y *float64) {
		if x != nil || y != nil {
			d.Figures = append(d.Figures, Figures{name, unit, x, y})
		}
	}
	number := func(n *uint64) *float64 {
		if n == nil {
			return nil
		}
		return new(float64(*n))
	}
	add("exchanges", "count", number(a.Exchanges), number(b.Exchanges))
	for _, h := range []struct {
		name string
		a, b *attribution.Histogram
	}{{"TTFT", a.TTFT, b.TTFT}, {"gap", a.Gap, b.Gap}} {
		for _, q := range []float64{0.5, 0.99} {
			add(fmt.Sprintf("%s p%.0f", h.name, q*100), "seconds", quantileOf(h.a, q), quantileOf(h.b, q))
		}
	}
	for s := range attribution.NumStages {
		name := attribution.Stage(s).String()
		add("TTFT "+name+" mean", "seconds", meanOf(a.Stages[s].TTFT, a.TTFT), meanOf(b.Stages[s].TTFT, b.TTFT))
		add("gap "+name+" mean", "seconds", meanOf(a.Stages[s].Gap, a.Gap), meanOf(b.Stages[s].Gap, b.Gap))
	}
	add("retransmits", "count", number(a.Loss.Retransmits), number(b.Loss.Retransmits))
	add("zero windows", "count", number(a.Loss.ZeroWindows), number(b.Loss.ZeroWindows))
	if a.Accept != nil && b.Accept != nil {
		add("accept overflows", "count", number(a.Accept.Overflows), number(b.Accept.Overflows))
		add("accept wait p99", "seconds", quantileOf(a.Accept.Wait, 0.99), quantileOf(b.Accept.Wait, 0.99))
	}
	return d
}

// quantileOf is nil where there is no sample.
func quantileOf(h *attribution.Histogram, q float64) *float64 {
	if h == nil || h.Count() == 0 {
		return nil
	}
	return new(h.Quantile(q).Seconds())
}

// meanOf is the stage's time per sample of the whole.
func meanOf(stage, whole *attribution.Histogram) *float64 {
	if stage == nil || whole == nil || whole.Count() == 0 {
		return nil
	}
	return new(stage.Sum().Seconds() / float64(whole.Count()))
}

// WriteDiffJSON writes d as JSON.
func WriteDiffJSON(w io.Writer, d *Diff) error {
	return writeJSON(w, d)
}

// WriteDiffText writes d for people.
func WriteDiffText(w io.Writer, d *Diff) error {
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintf(t, "A  %s to %s\nB  %s to %s\n", clock(d.A.From), clock(d.A.To), clock(d.B.From), clock(d.B.To))
	for _, p := range d.Ports {
		name := fmt.Sprintf(":%d %s", p.Port, p.Process)
		if ns := namespaceIn(d.namespaces(), p.NetNS); ns != "" {
			name += " · " + ns
		}
		fmt.Fprintf(t, "\n%s\n  \tA\tB\tchange\n", name)
		for _, f := range p.Figures {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", f.Name, figure(f.A, f.Unit), figure(f.B, f.Unit), change(f.A, f.B))
		}
	}
	for _, l := range []struct {
		title string
		list  []Finding
	}{{"New in B", d.New}, {"Gone since A", d.Gone}} {
		if len(l.list) == 0 {
			continue
		}
		fmt.Fprintf(t, "\n%s\n", l.title)
		for _, f := range l.list {
			fmt.Fprintf(t, "- %s: %s\n", strings.ToUpper(f.Severity), f.Title)
		}
	}
	return t.Flush()
}

func clock(t time.Time) string { return t.Local().Format(time.DateTime) }

func figure(v *float64, unit string) string {
	switch {
	case v == nil:
		return "-"
	case unit == "count":
		return count(uint64(*v))
	}
	return seconds(*v)
}

func change(a, b *float64) string {
	switch {
	case a == nil || b == nil:
		return ""
	case *a == *b:
		return "="
	case *a == 0:
		return "new"
	}
	return fmt.Sprintf("× %.2f", *b / *a)
}
