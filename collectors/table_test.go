// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var names = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// TestNames: the rules of Prometheus and of this project.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Table {
		wrong := func(what string) { t.Errorf("%s: %s", f.Name, what) }
		if seen[f.Name] {
			wrong("it is there twice")
		}
		seen[f.Name] = true
		if !strings.HasPrefix(f.Name, "velo_agent_") || !names.MatchString(f.Name) {
			wrong("the name does not begin with velo_agent_, or is no name")
		}
		base, total := strings.CutSuffix(f.Name, "_total")
		if total != (f.Type == Counter) {
			wrong("counters, and they alone, end in _total")
		}
		if f.Unit != "" && !strings.HasSuffix(base, "_"+f.Unit) {
			wrong("the unit is not in the name")
		}
		for _, unit := range []string{"seconds", "bytes"} {
			if f.Unit != unit && strings.HasSuffix(base, "_"+unit) {
				wrong("the name has the unit " + unit + ", and the row not")
			}
		}
		if f.Type == Histogram && f.Unit == "" {
			wrong("a histogram without a unit")
		}
		if f.Budget < 1 || f.Source == "" || !strings.HasSuffix(f.Help, ".") {
			wrong("it lacks a budget, a source or a sentence")
		}
		labels := map[string]bool{}
		for _, l := range f.Labels {
			if !names.MatchString(l) || labels[l] || l == "le" || l == "instance" || l == "job" {
				wrong("the label " + l)
			}
			labels[l] = true
		}
	}
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

func TestDocsExist(t *testing.T) {
	for _, f := range Table {
		page, anchor, _ := strings.Cut(f.Docs, "#")
		text, err := os.ReadFile(filepath.Join("..", "docs", page))
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		found := anchor == ""
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			plain := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
			found = found || strings.ReplaceAll(plain, " ", "-") == anchor
		}
		if !found {
			t.Errorf("%s: docs/%s has no heading #%s", f.Name, page, anchor)
		}
	}
}
