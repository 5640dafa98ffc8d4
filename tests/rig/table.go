// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// column of the table; wide ones show least and greatest too.
type column struct {
	head string
	figure
	format string
	wide   bool
}

var columns = []column{
	{"records/s", rate, "%.3g", false},
	{"CPU µs", cpu, "%.3g", true},
	{"consumer", cpuConsumer, "%.3g", false},
	{"producer", cpuProducer, "%.3g", false},
	{"p50 ms", p50, "%.3g", false},
	{"p99 ms", p99, "%.3g", true},
	{"set-up p50", setupP50, "%.3g", false},
	{"p99", setupP99, "%.3g", true},
	{"CPU µs", setupCPU, "%.3g", false},
	{"KiB/stream", memory, "%.3g", true},
	{"writes", writes, "%.2g", false},
	{"back", writesBack, "%.2g", false},
	{"switches", switches, "%.2g", false},
	{"allocations", allocs, "%.2g", false},
	{"cores %", cores, "%.0f", false},
	{"others %", others, "%.0f", false},
}

// table is what the arms did in a case.
type table struct {
	name string
	arms []arm
	reps map[arm][]figures
	// faults says why an arm has no figures: records that are missing do not wait in
	// queues, so an arm with a fault shows nothing.
	faults map[arm]error
}

// of returns the values of a figure, by repetition; nil where it was not measured.
func (t *table) of(a arm, f figure) (xs []float64) {
	for _, r := range t.reps[a] {
		if x, ok := r[f]; ok {
			xs = append(xs, x)
		}
	}
	return xs
}

// ratio is median ÷ median, between the least and the greatest ratio of a repetition.
func (t *table) ratio(a, b arm, f figure) (spread, bool) {
	xs, ys := t.of(a, f), t.of(b, f)
	if len(xs) == 0 || len(xs) != len(ys) {
		return spread{}, false
	}
	each := make([]float64, len(xs))
	for i := range xs {
		each[i] = xs[i] / ys[i]
	}
	s := spreadOf(each)
	s.Median = spreadOf(xs).Median / spreadOf(ys).Median
	return s, true
}

// print prints a row for each arm, ended by what remark says of it.
func (t *table) print(w io.Writer, columns []column, remark func(arm) string) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprint(tw, t.name)
	for _, c := range columns {
		fmt.Fprintf(tw, "\t%s", c.head)
	}
	fmt.Fprintln(tw)
	for _, a := range t.arms {
		fmt.Fprintf(tw, "  %v", a)
		if t.faults[a] != nil {
			fmt.Fprintln(tw, "\tFAULT")
			continue
		}
		for _, c := range columns {
			fmt.Fprintf(tw, "\t%s", c.cell(t.of(a, c.figure)))
		}
		fmt.Fprintf(tw, "\t%s\n", remark(a))
	}
	tw.Flush()
	fmt.Fprintln(w)
}

func (c column) cell(xs []float64) string {
	if len(xs) == 0 {
		return "-"
	}
	s := spreadOf(xs)
	if c.wide {
		return fmt.Sprintf(c.format+" ["+c.format+", "+c.format+"]", s.Median, s.Least, s.Most)
	}
	return fmt.Sprintf(c.format, s.Median)
}

// behind reports whether an arm is saturated: it moves less than it is asked to.
func (m measured) behind(a arm) bool {
	xs := m.of(a, rate)
	return m.paced && len(xs) > 0 && spreadOf(xs).Median < 0.95*pace
}

// disturbed is how much of the cores others may use before it is said, in %.
const disturbed = 10

// remark says what makes an arm's figures doubtful.
func (m measured) remark(a arm) string {
	var all []string
	if m.behind(a) {
		all = append(all, fmt.Sprintf("%v does not keep the pace", a))
	}
	if xs := m.of(a, others); len(xs) > 0 && spreadOf(xs).Most > disturbed {
		all = append(all, fmt.Sprintf("%v was disturbed by others, up to %.0f %% of the cores", a, spreadOf(xs).Most))
	}
	return strings.Join(all, "; ")
}

// figuresOf is one row of the file of all figures.
type figuresOf struct {
	Case    string `json:"case"`
	Carrier string `json:"carrier"`
	Figure  figure `json:"figure"`
	Unit    string `json:"unit"`
	Samples int    `json:"samples"`
	spread
}

func (t *table) figures() (all []figuresOf) {
	for _, a := range t.arms {
		for _, f := range order {
			if xs := t.of(a, f.figure); len(xs) > 0 {
				all = append(all, figuresOf{t.name, a.String(), f.figure, f.unit, len(xs), spreadOf(xs)})
			}
		}
	}
	return all
}

// writeFigures writes what was measured, judged or not, beside the results.
func writeFigures(dir, target string, all []figuresOf) error {
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, target+"-figures.json"), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
