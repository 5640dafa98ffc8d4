// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 every Grafana reads this schema; the newer one is for 12 and later.

package dashboards

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/velo-agent/velo-agent/collectors"
)

func files(t *testing.T) map[string][]byte {
	t.Helper()
	generated, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	return generated
}

// loaded decodes the generated dashboards as Grafana's schema has them, strictly.
func loaded(t *testing.T) map[string]dashboard.Dashboard {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	all := map[string]dashboard.Dashboard{}
	for name, text := range files(t) {
		if filepath.Ext(name) != ".json" {
			continue
		}
		// The strict reader returns an error in any case, empty where nothing is
		// wrong, and drops the panels for it: what is looked at is read again.
		var strict, d dashboard.Dashboard
		var wrong cog.BuildErrors
		if err := strict.UnmarshalJSONStrict(text); err != nil && (!errors.As(err, &wrong) || len(wrong) > 0) {
			t.Fatalf("%s: %v", name, err)
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := d.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = d
	}
	if len(all) != len(boards()) {
		t.Fatalf("%d dashboards are generated, want %d", len(all), len(boards()))
	}
	return all
}

// The strict reader must see what is wrong in a panel, or loaded shows nothing.
func TestStrictReaderIsStrict(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for _, key := range []string{`"gridPos"`, `"expr"`, `"showHeader"`, `"uid"`} {
		text := bytes.Replace(files(t)["node.json"], []byte(key), []byte(`"unknownToGrafana"`), 1)
		var d dashboard.Dashboard
		var wrong cog.BuildErrors
		if err := d.UnmarshalJSONStrict(text); !errors.As(err, &wrong) || len(wrong) == 0 {
			t.Errorf("%s misspelt: %v", key, err)
		}
	}
}

func TestCommitted(t *testing.T) {
	generated := files(t)
	for name, want := range generated {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the table gives: go run ./dashboards/generate", name)
		}
	}
	for _, pattern := range []string{"*.json", "rules.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			if generated[name] == nil {
				t.Errorf("%s is no longer generated: delete it", name)
			}
		}
	}
}

func TestLayout(t *testing.T) {
	for name, d := range loaded(t) {
		ids := map[uint32]bool{}
		taken := map[[2]uint32]string{}
		for _, p := range d.Panels {
			id, title, at := idTitlePosition(p)
			if id == 0 || ids[id] {
				t.Errorf("%s: %q has the id %d, 0 or used before", name, title, id)
			}
			ids[id] = true
			if at.W == 0 || at.H == 0 || at.X+at.W > 24 {
				t.Errorf("%s: %q is at %+v, outside of the 24 columns", name, title, *at)
			}
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					if other, ok := taken[[2]uint32{x, y}]; ok {
						t.Fatalf("%s: %q lies on %q", name, title, other)
					}
					taken[[2]uint32{x, y}] = title
				}
			}
		}
	}
}

func idTitlePosition(p dashboard.PanelOrRowPanel) (uint32, string, *dashboard.GridPos) {
	if p.RowPanel != nil {
		return p.RowPanel.Id, *p.RowPanel.Title, p.RowPanel.GridPos
	}
	return *p.Panel.Id, *p.Panel.Title, p.Panel.GridPos
}

func TestPanelsAreExplained(t *testing.T) {
	for name, d := range loaded(t) {
		titles := map[string]bool{}
		for _, p := range d.Panels {
			if p.Panel == nil {
				continue
			}
			title := *p.Panel.Title
			if titles[title] {
				t.Errorf("%s has two panels %q", name, title)
			}
			titles[title] = true
			if len(p.Panel.Targets) == 0 {
				t.Errorf("%s: %q has no query", name, title)
			}
			if len(p.Panel.Links) == 0 {
				t.Errorf("%s: %q has no link", name, title)
			}
			for _, l := range p.Panel.Links {
				if !strings.HasPrefix(*l.Url, docs) {
					t.Errorf("%s: %q links to %s", name, title, *l.Url)
				}
			}
		}
	}
	for _, b := range boards() {
		for _, r := range b.rows {
			for _, p := range r.panels {
				if !strings.HasSuffix(p.description(), p.advice) || p.advice == "" {
					t.Errorf("%s: %q does not say what to do with it", b.name, p.title)
				}
			}
		}
	}
}

func TestEveryFamilyIsShown(t *testing.T) {
	var exprs []string
	for _, q := range Queries() {
		exprs = append(exprs, q.Expr)
	}
	shown := families(exprs...)
	for _, f := range everything() {
		if !slices.Contains(shown, f) {
			t.Errorf("no panel shows %s", f.Name)
		}
	}
}

// Every name of ours or velo's in an expression is one of the tables, and nothing of Grafana is
// left in what is executed.
func TestNamesAreOfTheTable(t *testing.T) {
	exprs := map[string]string{}
	for _, q := range Queries() {
		exprs[q.Expr] = q.Dashboard + ": " + q.Panel
	}
	for _, r := range Rules() {
		exprs[r.Expr] = r.Alert + r.Record
	}
	for expr, where := range exprs {
		if strings.Contains(expr, "$") {
			t.Errorf("%s: a variable is left in %s", where, expr)
		}
		for _, n := range name.FindAllString(expr, -1) {
			if strings.HasPrefix(n, "velo_") && family(n) == nil {
				t.Errorf("%s: %s is not in the tables", where, n)
			}
		}
	}
}

func TestVariablesAreUsed(t *testing.T) {
	for _, b := range boards() {
		var all strings.Builder
		for _, r := range b.rows {
			for _, p := range r.panels {
				all.WriteString(strings.Join(p.exprs(), " "))
			}
		}
		for _, v := range []string{"port", "model"} {
			if used := strings.Contains(all.String(), "$"+v); used != b.perPort {
				t.Errorf("%s: the variable %s is used: %v, and chosen: %v", b.name, v, used, b.perPort)
			}
		}
		if !strings.Contains(all.String(), `instance=~"$node"`) {
			t.Errorf("%s: the variable node is not used", b.name)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		f          collectors.Family
		value, per string
	}{
		{collectors.TTFT, "s", "percentunit"},
		{collectors.Memory, "bytes", "cps"},
		{collectors.Exchanges, "short", "cps"},
		{collectors.CPU, "s", "percentunit"},
	} {
		if unit(c.f) != c.value || rateUnit(c.f) != c.per {
			t.Errorf("%s is shown in %s, its rate in %s; want %s and %s", c.f.Name, unit(c.f), rateUnit(c.f), c.value, c.per)
		}
	}
}

func TestQueriesThatCannotBe(t *testing.T) {
	for name, ask := range map[string]func(){
		"rate of a gauge":     func() { shown.rate(collectors.AcceptDepth) },
		"value of a counter":  func() { shown.current(nil, collectors.Exchanges) },
		"buckets of a gauge":  func() { buckets(collectors.AcceptDepth) },
		"by a label not had":  func() { shown.total([]string{"stage"}, collectors.Exchanges) },
		"matches one not had": func() { shown.series(collectors.Exchanges, is("stage", "engine")) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was made")
				}
			}()
			ask()
		})
	}
}
