// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Rule is one recording or alerting rule.
type Rule struct {
	Record string // name of the recorded series; "" for an alert
	Alert  string // name of the alert; "" for a recording rule
	Expr   string // PromQL

	For         string // how long the expression must hold; "" for at once
	Severity    string // critical: clients feel it now; warning: look today; info: good to know
	Summary     string
	Description string
}

// Runbook is the page of an alert.
func (r Rule) Runbook() string { return docs + "alerts.md#" + strings.ToLower(r.Alert) }

// Rules are all recording rules, then all alerts.
func Rules() []Rule { return append(recordings(), alerts()...) }

// rulesFile is the rules as Prometheus reads them.
func rulesFile() ([]byte, error) {
	type rule struct {
		Record      string            `yaml:"record,omitempty"`
		Alert       string            `yaml:"alert,omitempty"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for,omitempty"`
		Labels      map[string]string `yaml:"labels,omitempty"`
		Annotations map[string]string `yaml:"annotations,omitempty"`
	}
	type group struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	groups := []group{{Name: "velo-agent-recordings"}, {Name: "velo-agent-alerts"}}
	for _, r := range Rules() {
		if r.Alert == "" {
			groups[0].Rules = append(groups[0].Rules, rule{Record: r.Record, Expr: r.Expr})
			continue
		}
		groups[1].Rules = append(groups[1].Rules, rule{
			Alert: r.Alert, Expr: r.Expr, For: r.For, Labels: map[string]string{"severity": r.Severity},
			Annotations: map[string]string{"summary": r.Summary, "description": r.Description, "runbook_url": r.Runbook()},
		})
	}
	var b bytes.Buffer
	b.WriteString("# SPDX-License-Identifier: Apache-2.0\n# Written from the table of metrics: go run ./dashboards/generate\n")
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(map[string]any{"groups": groups}); err != nil {
		return nil, fmt.Errorf("writing the rules as YAML: %w", err)
	}
	return b.Bytes(), nil
}
