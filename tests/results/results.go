// SPDX-License-Identifier: Apache-2.0

// Package results writes what a measuring target found, as a table for people
// and as build/results/<target>.json for machines (DESIGN.md section 8).
package results

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Better says in which direction a case's value is good.
type Better string

// The two directions.
const (
	Higher Better = "higher"
	Lower  Better = "lower"
)

// Case is one measured figure against its goal. Pass is nil where this machine
// could not measure it; Note then says why.
type Case struct {
	Name    string   `json:"name"`
	Value   *float64 `json:"value,omitempty"`
	Unit    string   `json:"unit"`
	Goal    float64  `json:"goal"`
	Better  Better   `json:"better"`
	Pass    *bool    `json:"pass"`
	Samples int      `json:"samples"`
	Note    string   `json:"note,omitempty"`
}

// Run collects the cases of one target.
type Run struct {
	Target  string    `json:"target"`
	Commit  string    `json:"commit"`
	Kernel  string    `json:"kernel"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Cases   []Case    `json:"cases"`

	failed string
}

// New starts the run of a target.
func New(target string) *Run {
	return &Run{Target: target, Commit: commit(), Kernel: kernel(), Started: time.Now()}
}

// Add judges value against goal and records it.
func (r *Run) Add(name string, value float64, unit string, goal float64, better Better, samples int, note string) {
	pass := value >= goal
	if better == Lower {
		pass = value <= goal
	}
	r.Judge(name, value, unit, goal, better, pass, samples, note)
}

// Judge records a case whose verdict the caller made (an interval, say).
func (r *Run) Judge(name string, value float64, unit string, goal float64, better Better, pass bool, samples int, note string) {
	r.Cases = append(r.Cases, Case{Name: name, Value: &value, Unit: unit, Goal: goal, Better: better, Pass: &pass, Samples: samples, Note: note})
}

// Skip records a case that this machine cannot run, and why.
func (r *Run) Skip(name, unit string, goal float64, better Better, why string) {
	r.Cases = append(r.Cases, Case{Name: name, Unit: unit, Goal: goal, Better: better, Note: why})
}

// Fail records that the target as a whole could not be measured.
func (r *Run) Fail(why string) { r.failed = why }

// Attempt measures up to n times and keeps the first run of measure that misses
// no goal, or the last. It is for short forms, where one stall of the machine
// outweighs all samples; the note of each case says which attempt it was. It waits
// before it tries again, i seconds after attempt i: what disturbs may last a while.
func (r *Run) Attempt(n int, measure func(*Run)) {
	for i := 1; ; i++ {
		try := &Run{}
		measure(try)
		if try.missed() && i < n {
			time.Sleep(time.Duration(i) * time.Second)
			continue
		}
		for _, c := range try.Cases {
			if i > 1 {
				c.Note = fmt.Sprintf("attempt %d; %s", i, c.Note)
			}
			r.Cases = append(r.Cases, c)
		}
		if try.failed != "" {
			r.Fail(try.failed)
		}
		return
	}
}

func (r *Run) missed() bool {
	return r.failed != "" || slices.ContainsFunc(r.Cases, func(c Case) bool { return c.Pass != nil && !*c.Pass })
}

// Finish prints the table to w, writes the JSON below dir and returns the exit
// code: 0 all passed, 1 a case missed its goal, 2 it could not be measured.
func (r *Run) Finish(w io.Writer, dir string) int {
	r.Seconds = time.Since(r.Started).Seconds()
	code := 0
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(tw, "%s\t\tvalue\tgoal\tsamples\tnote\n", r.Target)
	for _, c := range r.Cases {
		mark, value := "skip", "-"
		if c.Pass != nil {
			mark, value = "ok", fmt.Sprintf("%.4g %s", *c.Value, c.Unit)
			if !*c.Pass {
				mark, code = "MISS", 1
			}
		}
		sign := "≥"
		if c.Better == Lower {
			sign = "≤"
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s %.4g\t%d\t%s\n", c.Name, mark, value, sign, c.Goal, c.Samples, c.Note)
	}
	tw.Flush()
	if r.failed != "" {
		fmt.Fprintf(w, "%s could not be measured: %s\n", r.Target, r.failed)
		code = 2
	}
	if err := r.write(dir); err != nil {
		fmt.Fprintf(w, "%s: writing the result: %v\n", r.Target, err)
		code = 2
	}
	return code
}

func (r *Run) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Target+".json"), append(b, '\n'), 0o644)
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
