// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// row is a heading and the panels below it.
type row struct {
	title  string
	panels []panel
}

// board is one dashboard; name is its file's without .json.
type board struct {
	name, title, description string
	perPort                  bool   // has the variables port and model
	nodes                    string // query of the variable node; "": the agents
	rows                     []row
}

func boards() []board {
	return []board{node(), stages(), sockets(), agent(), plane()}
}

// build makes the SDK's dashboard of b. Its uid is the same in each build.
//
//lint:ignore SA1019 every Grafana reads this schema; the newer one is for 12 and later.
func (b board) build() (dashboard.Dashboard, error) {
	//lint:ignore SA1019 as above
	d := dashboard.NewDashboardBuilder(b.title).
		Uid("velo-agent-"+b.name).Description(b.description).Tags([]string{"velo-agent"}).
		Time("now-1h", "now").Refresh("30s").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Variables(b.variables()).
		Link(dashboard.NewDashboardLinkBuilder("velo-agent").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{"velo-agent"}).IncludeVars(true).KeepTime(true))
	for _, r := range b.rows {
		d = d.WithRow(dashboard.NewRowBuilder(r.title))
		for _, p := range r.panels {
			d = d.WithPanel(p)
		}
	}
	built, err := d.Build()
	if err != nil {
		return built, fmt.Errorf("building dashboard %s: %w", b.name, err)
	}
	for i, p := range built.Panels {
		if id := uint32(i + 1); p.RowPanel != nil {
			p.RowPanel.Id = id
		} else {
			p.Panel.Id = &id
		}
	}
	return built, nil
}

// variables choose the data source and the node, and the port and the model.
func (b board) variables() []cog.Builder[dashboard.VariableModel] {
	nodes := cmp.Or(b.nodes, values("instance", agents))
	all := []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"),
		choice("node", "Node", nodes),
	}
	if b.perPort {
		all = append(all, choice("port", "Port", values("port", ports)), choice("model", "Model", values("model", models)))
	}
	return all
}

// choice is a variable of many values. All of them includes the empty one: of most
// ports the model is not known.
func choice(name, label, query string) *dashboard.QueryVariableBuilder {
	everything := dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source).
		Query(dashboard.StringOrMap{String: &query}).Definition(query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortNaturalAsc).
		Multi(true).IncludeAll(true).AllValue(".*").
		Current(dashboard.VariableOption{
			Selected: new(true), Text: dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}}, Value: everything,
		})
}

// Files are the generated files by name, *.json and rules.yaml.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, b := range boards() {
		d, err := b.build()
		if err != nil {
			return nil, err
		}
		text, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("writing dashboard %s as JSON: %w", b.name, err)
		}
		files[b.name+".json"] = append(text, '\n')
	}
	rules, err := rulesFile()
	if err != nil {
		return nil, err
	}
	files["rules.yaml"] = rules
	return files, nil
}
