// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// readMeasured takes the cases of a measuring target (package tests/results) as if
// they were tests: one without a verdict was skipped, its note says why.
func (s *summary) readMeasured(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("opening a target's results: %w", err)
	}
	var run struct {
		Target string
		Cases  []struct {
			Name, Note, Unit string
			Value            *float64
			Goal             float64
			Pass             *bool
		}
	}
	if err := json.Unmarshal(b, &run); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	for _, c := range run.Cases {
		t := &test{outcome: "skip", output: []string{c.Note}}
		switch {
		case c.Pass == nil:
		case *c.Pass:
			t.outcome = "pass"
		default:
			t.outcome = "fail"
			t.output = []string{fmt.Sprintf("it is %v %s, the goal is %v; %s\n", deref(c.Value), c.Unit, c.Goal, c.Note)}
		}
		k := key{run.Target, c.Name}
		s.tests[k] = t
		s.order = append(s.order, k)
	}
	return nil
}

func deref(v *float64) any {
	if v == nil {
		return "unknown"
	}
	return *v
}
