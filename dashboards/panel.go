// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// target is one query of a panel.
type target struct {
	expr, legend string
	format       prometheus.PromQueryFormat // "" for series over time
	now          bool                       // the latest value alone
	exemplars    bool                       // with the streams that stand for it
}

// panel is one panel; the families that its queries read describe it.
type panel struct {
	title         string
	advice        string // what to do with it
	width, height uint32 // of 24 columns
	draw          cog.Builder[dashboard.Panel]
	targets       []target
}

var source = common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}

// Build makes the SDK's panel of it. It has no id yet.
func (p panel) Build() (dashboard.Panel, error) {
	built, err := p.draw.Build()
	if err != nil {
		return built, err
	}
	built.Title, built.Description = &p.title, new(p.description())
	built.Datasource = &source
	built.GridPos = &dashboard.GridPos{W: p.width, H: p.height}
	built.Links = p.links()
	for i, t := range p.targets {
		built.Targets = append(built.Targets, t.query(string(rune('A'+i))))
	}
	return built, nil
}

func (t target) query(id string) variants.Dataquery {
	format := t.format
	if format == "" {
		format = prometheus.PromQueryFormatTimeSeries
	}
	return prometheus.Dataquery{
		RefId: &id, Expr: t.expr, LegendFormat: &t.legend, Format: &format,
		Instant: &t.now, Range: new(!t.now), Exemplar: &t.exemplars, Datasource: &source,
	}
}

func (p panel) exprs() []string {
	var exprs []string
	for _, t := range p.targets {
		exprs = append(exprs, t.expr)
	}
	return exprs
}

// description is the table's help of each family, and the advice.
func (p panel) description() string {
	var b strings.Builder
	for _, f := range families(p.exprs()...) {
		fmt.Fprintf(&b, "`%s`: %s\n\n", f.Name, f.Help)
	}
	return b.String() + p.advice
}

// links are the docs pages of the families, each once.
func (p panel) links() []dashboard.DashboardLink {
	var links []dashboard.DashboardLink
	seen := map[string]bool{}
	for _, f := range families(p.exprs()...) {
		if seen[f.Docs] {
			continue
		}
		seen[f.Docs] = true
		links = append(links, dashboard.DashboardLink{
			Title: f.Docs, Type: dashboard.DashboardLinkTypeLink, Icon: "doc", Tooltip: "What it means",
			Url: new(docs + f.Docs), Tags: []string{}, TargetBlank: true,
		})
	}
	return links
}
