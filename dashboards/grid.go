// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// column is one column of values of a table: its heading, its unit, and the query
// whose labels name the row.
type column struct {
	title, unit, expr string
}

// grid is a table: a row for each set of labels, which stand first under their own
// names, then a column for each query. Labels that not all queries have (the stage of
// a topk) become columns too. A column without a title is not shown.
func grid(labels []string, columns ...column) (*table.PanelBuilder, []target) {
	hidden := map[string]bool{"Time": true}
	order, names := map[string]int{}, map[string]string{}
	for i, l := range labels {
		order[l] = i
	}
	var targets []target
	b := table.NewPanelBuilder().ShowHeader(true).Filterable(true).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
	for i, c := range columns {
		value := "Value #" + string(rune('A'+i))
		if len(columns) == 1 {
			value = "Value"
		}
		order[value] = len(labels) + i
		if c.title == "" {
			hidden[value] = true
		} else {
			names[value] = c.title
			b = b.OverrideByName(c.title, []dashboard.DynamicConfigValue{{Id: "unit", Value: c.unit}})
		}
		targets = append(targets, target{expr: c.expr, format: prometheus.PromQueryFormatTable, now: true})
	}
	b = b.WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": hidden, "indexByName": order, "renameByName": names,
		}})
	return b, targets
}

// listing is a table of labels alone, a row for each series.
func listing(title, advice string, width, height uint32, labels []string, expr string) panel {
	draw, targets := grid(labels, column{unit: units.Short, expr: expr})
	return panel{title: title, advice: advice, width: width, height: height, draw: draw, targets: targets}
}

// percent spells a quantile: 0.99 is p99.
func percent(q string) string {
	var f float64
	if _, err := fmt.Sscan(q, &f); err != nil {
		panic(fmt.Sprintf("dashboards: %q is no quantile", q))
	}
	return fmt.Sprintf("p%g", f*100)
}
