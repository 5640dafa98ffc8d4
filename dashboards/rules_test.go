// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// promtool runs Prometheus' own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: install Debian's package prometheus")
	}
	if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
		t.Fatalf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRulesParse(t *testing.T) { promtool(t, "check", "rules", "rules.yaml") }

// The queries of the panels are checked as if they were rules.
func TestQueriesParse(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("groups:\n- name: queries\n  rules:\n")
	for i, q := range Queries() {
		fmt.Fprintf(&b, "  - record: query_%d\n    expr: %q\n", i, q.Expr)
	}
	path := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}

func TestRulesBehave(t *testing.T) { promtool(t, "test", "rules", "rules_test.yaml") }

// rules_test.yaml must see each alert fire and see it silent, and each recorded series.
func TestRulesAreAllTested(t *testing.T) {
	text, err := os.ReadFile("rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tests struct {
		Tests []struct {
			Promql []struct {
				Expr    string `yaml:"expr"`
				Samples []any  `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(text, &tests); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, p := range test.Promql {
			if len(p.Samples) > 0 {
				fires[strings.Split(p.Expr, "{instance")[0]] = true
			} else {
				silent[p.Expr] = true
			}
		}
	}
	for _, r := range Rules() {
		if r.Record != "" {
			if !fires[r.Record] {
				t.Errorf("no test looks at %s", r.Record)
			}
			continue
		}
		expr := fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"})`, r.Alert)
		if !fires[expr] || !silent[expr] {
			t.Errorf("%s: seen firing %v, seen silent %v; want both, by %s", r.Alert, fires[expr], silent[expr], expr)
		}
	}
}

func TestAlertsAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Rules() {
		name := r.Alert + r.Record
		if names[name] || (r.Alert == "") == (r.Record == "") {
			t.Errorf("%q is there twice, or is both an alert and a recording, or neither", name)
		}
		names[name] = true
		if r.Alert == "" {
			continue
		}
		if r.Summary == "" || r.Description == "" {
			t.Errorf("%s lacks a summary or a description", r.Alert)
		}
		switch r.Severity {
		case critical, warning, info:
		default:
			t.Errorf("%s has the severity %q", r.Alert, r.Severity)
		}
	}
}
