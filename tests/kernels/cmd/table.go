// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/velo-agent/velo-agent/tests/kernels"
	"github.com/velo-agent/velo-agent/tests/results"
)

// column is what one kernel answered.
type column struct {
	name  string // "6.1", or "here"
	lines []kernels.Line
	err   error
}

type rungKey struct{ signal, name string }

// printRungs puts the ladders of the kernels side by side, then the reasons of
// what did not hold, each once.
func printRungs(w io.Writer, columns []column) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprint(tw, "signal\trung")
	var keys []rungKey
	cells := map[rungKey][]string{}
	var reasons []string
	where := map[string][]string{}
	for i, c := range columns {
		fmt.Fprintf(tw, "\t%s", c.name)
		used := map[string]bool{}
		for _, l := range c.lines {
			if l.Rung == nil {
				continue
			}
			k := rungKey{l.Rung.Signal, l.Rung.Name}
			if cells[k] == nil {
				keys = append(keys, k)
				cells[k] = slices.Repeat([]string{"-"}, len(columns))
			}
			switch {
			case l.Rung.Why != "":
				cells[k][i] = "no"
				if where[l.Rung.Why] == nil {
					reasons = append(reasons, l.Rung.Why)
				}
				where[l.Rung.Why] = append(where[l.Rung.Why], c.name+" "+k.name)
			case used[k.signal]:
				cells[k][i] = "holds"
			default:
				cells[k][i] = "used"
				used[k.signal] = true
			}
		}
	}
	fmt.Fprintln(tw)
	for _, k := range keys {
		fmt.Fprintf(tw, "%s\t%s", k.signal, k.name)
		for _, c := range cells[k] {
			fmt.Fprintf(tw, "\t%s", c)
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
	for _, r := range reasons {
		fmt.Fprintf(w, "%s\n", r)
		for _, at := range where[r] {
			fmt.Fprintf(w, "    %s\n", at)
		}
	}
}

// record takes a kernel's cases over under its name. A guest that did not run to
// its end is a case that missed.
func record(run *results.Run, c column) {
	for _, l := range c.lines {
		if x := l.Case; x != nil {
			y := *x
			y.Name = c.name + "/" + x.Name
			run.Cases = append(run.Cases, y)
		}
	}
	note, ended := "", 1.0
	if c.err != nil {
		note, ended = c.err.Error(), 0
	}
	run.Add(c.name+"/ran to its end", ended, "runs", 1, results.Higher, 1, note)
}
