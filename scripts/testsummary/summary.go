// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a build's output
	Elapsed                       float64
}

type key struct{ pkg, name string }

type test struct {
	outcome string // pass, fail, skip; empty while it runs
	output  []string
}

// summary is what the events have told so far.
type summary struct {
	tests map[key]*test
	order []key
	live  io.Writer // where packages are named as they end; nil: nowhere
}

// read takes all events of r; a line that is none is kept as a failure's output.
func (s *summary) read(r *bufio.Reader) error {
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				s.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) take(e event) {
	pkg := e.Package
	if pkg == "" {
		pkg = e.ImportPath
	}
	k := key{pkg, e.Test}
	t := s.tests[k]
	if t == nil {
		t = &test{}
		s.tests[k] = t
		s.order = append(s.order, k)
	}
	switch e.Action {
	case "output", "build-output":
		t.output = append(t.output, e.Output)
	case "build-fail":
		t.outcome = "fail"
	case "pass", "fail", "skip":
		t.outcome = e.Action
		if s.live != nil && e.Test == "" {
			fmt.Fprintf(s.live, "%-6s %-60s %6.1f s\n", e.Action, e.Package, e.Elapsed)
		}
	}
}

// reasonOf is what a skipped test said last.
func (t *test) reasonOf() string {
	for _, line := range slices.Backward(t.output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}

// print says what failed and what was skipped and returns the exit code.
func (s *summary) print(out io.Writer, name string, strict bool, reasons []reason) int {
	var passed, failed, skipped, refused int
	for _, k := range s.order {
		t := s.tests[k]
		if k.name == "" { // a package: it counts where no test of its own says why
			if t.outcome == "fail" && !s.testFailed(k.pkg) {
				failed++
				fmt.Fprintf(out, "\nFAIL %s\n%s", k.pkg, strings.Join(t.output, ""))
			}
			continue
		}
		switch t.outcome {
		case "pass":
			passed++
		case "skip":
			skipped++
			why := t.reasonOf()
			fmt.Fprintf(out, "skip   %s %s: %s\n", k.pkg, k.name, why)
			if strict && !legitimate(reasons, k.name, why) {
				refused++
				fmt.Fprintln(out, "       ^ this kind of machine can run it: not in the list of allowed skips")
			}
		default: // failed, or cut off while it ran
			failed++
			fmt.Fprintf(out, "\nFAIL %s %s\n%s", k.pkg, k.name, strings.Join(t.output, ""))
		}
	}
	fmt.Fprintf(out, "%s: %d passed, %d failed, %d skipped\n", name, passed, failed, skipped)
	if failed > 0 || refused > 0 || passed+skipped == 0 {
		return 1
	}
	return 0
}

func (s *summary) testFailed(pkg string) bool {
	for _, k := range s.order {
		if k.pkg == pkg && k.name != "" && s.tests[k].outcome != "pass" && s.tests[k].outcome != "skip" {
			return true
		}
	}
	return false
}
