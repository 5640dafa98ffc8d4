// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"strings"

	"github.com/velo-agent/velo-agent/collectors"
)

// What the variables choose from.
var (
	agents = scope{}.series(collectors.BuildInfo)
	ports  = scope{}.series(collectors.Exchanges, `instance=~"$node"`)
	models = scope{}.series(collectors.Exchanges, `instance=~"$node"`, `port=~"$port"`)
)

func values(label, series string) string { return "label_values(" + series + ", " + label + ")" }

// Query is one query of a panel.
type Query struct {
	Dashboard string // the file's name without .json
	Panel     string // title
	Expr      string // PromQL, with all chosen and a window of a minute
}

var executable = strings.NewReplacer(
	"$__rate_interval", "1m", "$__range", "1m", "$node", ".*", "$port", ".*", "$model", ".*",
)

// Queries are all queries of all dashboards, with the variables replaced by what
// Prometheus can execute.
func Queries() []Query {
	var all []Query
	for _, b := range boards() {
		for _, r := range b.rows {
			for _, p := range r.panels {
				for _, expr := range p.exprs() {
					all = append(all, Query{Dashboard: b.name, Panel: p.title, Expr: executable.Replace(expr)})
				}
			}
		}
	}
	return all
}
