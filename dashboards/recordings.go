// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"fmt"
	"strings"

	"github.com/velo-agent/velo-agent/collectors"
)

// What the recording rules add to the name of a family.
const (
	p99     = "p99_5m"
	share   = "share_5m"
	average = "mean_5m"
	missed  = "ratio_" // and a window
)

// The windows of the burn rates: a short and a long one for each alert.
var windows = []string{"5m", "30m", "1h", "6h"}

// recorded is the name of a recorded series: what its labels tell apart, what it
// is made of, how.
func recorded(level string, f collectors.Family, how string) string {
	return level + ":" + strings.TrimSuffix(f.Name, "_total") + ":" + how
}

// recordings keep every label of a port, so that alerts can name the model.
func recordings() []Rule {
	s := past("5m")
	var rules []Rule
	for _, f := range []collectors.Family{collectors.TTFT, collectors.Gap} {
		rules = append(rules, Rule{
			Record: recorded("port", f, p99),
			Expr:   "histogram_quantile(0.99, " + s.rate(buckets(f)) + ")",
		})
	}
	for _, x := range []split{ttft, gap} {
		// A stage has samples where it took time: the mean is over all of the whole.
		time := s.rate(sumOf(x.stage))
		rules = append(rules,
			Rule{Record: recorded("port_stage", x.stage, share), Expr: partOf(time, "stage", s.rate(sumOf(x.whole)))},
			Rule{Record: recorded("port_stage", x.stage, average), Expr: spread(time, "stage", s.rate(countOf(x.whole)))},
		)
	}
	for _, w := range windows {
		rules = append(rules, Rule{
			Record: recorded("port_objective", collectors.ObjectiveMissed, missed+w),
			Expr: partOf("sum without (stage) ("+past(w).rate(collectors.ObjectiveMissed)+")", "objective",
				past(w).rate(collectors.Exchanges)),
		})
	}
	return append(rules, planeRecordings()...)
}

// partOf is spread where the parts are of the whole. It is never above 1: rate
// extrapolates a series that began within the window otherwise than its whole.
func partOf(parts, label, whole string) string {
	return "clamp_max(" + spread(parts, label, whole) + ", 1)"
}

// spread is the ratio of series that a label tells apart to their one whole.
func spread(parts, label, whole string) string {
	return fmt.Sprintf("%s / ignoring (%s) group_left () (%s > 0)", parts, label, whole)
}
