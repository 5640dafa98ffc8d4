// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/velo-agent/velo-agent/collectors"
)

// scope is what a query looks at: how far back, and whether the variables of the
// dashboard choose the series. Its methods panic on a family of another type and on
// a label that the family does not have: such a query could only ever be empty.
type scope struct {
	window    string
	variables bool
}

var (
	// shown is a point of a graph, ranged the whole time range of the dashboard.
	shown  = scope{window: "$__rate_interval", variables: true}
	ranged = scope{window: "$__range", variables: true}
)

// past is the last window of all series, for rules.
func past(window string) scope { return scope{window: window} }

// port is what tells one watched port from another on a dashboard.
var port = []string{"instance", "netns", "port", "model"}

// of names a port in a legend.
const of = "{{instance}} :{{port}} {{netns}} {{model}}"

// is makes a matcher.
func is(label, value string) string { return label + "=" + strconv.Quote(value) }

// isNot makes a matcher of all values but those that match.
func isNot(label, pattern string) string { return label + "!~" + strconv.Quote(pattern) }

func sumOf(f collectors.Family) collectors.Family   { return part(f, "_sum") }
func countOf(f collectors.Family) collectors.Family { return part(f, "_count") }
func buckets(f collectors.Family) collectors.Family { return part(f, "_bucket", "le") }

// part is a series of a classic histogram; it counts up, as a counter does.
func part(f collectors.Family, suffix string, labels ...string) collectors.Family {
	mustBe(f, collectors.Histogram)
	f.Name += suffix
	f.Type = collectors.Counter
	f.Labels = slices.Concat(f.Labels, labels)
	return f
}

// series selects f.
func (s scope) series(f collectors.Family, matchers ...string) string {
	for _, m := range matchers {
		mustHave(f, m[:strings.IndexAny(m, "!=")])
	}
	if s.variables {
		chosen := []string{`instance=~"$node"`}
		for _, label := range []string{"port", "model"} {
			if slices.Contains(f.Labels, label) {
				chosen = append(chosen, label+`=~"$`+label+`"`)
			}
		}
		matchers = slices.Concat(chosen, matchers)
	}
	if len(matchers) == 0 {
		return f.Name
	}
	return f.Name + "{" + strings.Join(matchers, ",") + "}"
}

// rate is how much a counter grew in a second.
func (s scope) rate(f collectors.Family, matchers ...string) string {
	mustBe(f, collectors.Counter)
	return "rate(" + s.series(f, matchers...) + "[" + s.window + "])"
}

// increase is how much a counter grew.
func (s scope) increase(f collectors.Family, matchers ...string) string {
	mustBe(f, collectors.Counter)
	return "increase(" + s.series(f, matchers...) + "[" + s.window + "])"
}

// grew is true of a counter that counted something, its first count included: the
// series may not have been there before.
func (s scope) grew(f collectors.Family, matchers ...string) string {
	series := s.series(f, matchers...)
	return fmt.Sprintf("(%s > 0) or (%s > 0 unless %s offset %s)", s.increase(f, matchers...), series, series, s.window)
}

// total is the rate of a counter, added up.
func (s scope) total(by []string, f collectors.Family, matchers ...string) string {
	return aggregate("sum", by, f, s.rate(f, matchers...))
}

// current is a gauge, added up.
func (s scope) current(by []string, f collectors.Family, matchers ...string) string {
	mustBe(f, collectors.Gauge)
	return aggregate("sum", by, f, s.series(f, matchers...))
}

// highest is the greatest of a gauge.
func (s scope) highest(by []string, f collectors.Family, matchers ...string) string {
	mustBe(f, collectors.Gauge)
	return aggregate("max", by, f, s.series(f, matchers...))
}

// quantile is a quantile of a histogram.
func (s scope) quantile(q string, by []string, f collectors.Family, matchers ...string) string {
	return "histogram_quantile(" + q + ", " + s.total(slices.Concat(by, []string{"le"}), buckets(f), matchers...) + ")"
}

// within is the share of exchanges that met an objective. A port without a miss has
// no series of misses; one without an objective has no share. It is never below 0:
// rate extrapolates a series that began within the window otherwise than its whole.
func (s scope) within(objective string, by []string) string {
	exchanges := s.total(by, collectors.Exchanges)
	missed := s.total(by, collectors.ObjectiveMissed, is("objective", objective))
	return fmt.Sprintf("clamp_min(1 - (%s or 0 * %s) / (%s > 0), 0) and on (instance) %s",
		missed, exchanges, exchanges, s.series(collectors.Objective, is("objective", objective)))
}

// ratio is a / b where b is not 0: nothing is said of a whole that did not happen.
func ratio(a, b string) string { return a + " / (" + b + " > 0)" }

// aggregate adds series up, or takes their greatest; by nothing means all in one.
func aggregate(how string, by []string, f collectors.Family, of string) string {
	mustHave(f, by...)
	if len(by) == 0 {
		return how + "(" + of + ")"
	}
	return how + " by (" + strings.Join(by, ", ") + ") (" + of + ")"
}

func mustBe(f collectors.Family, t collectors.Type) {
	if f.Type != t {
		panic(fmt.Sprintf("dashboards: %s is a %s, the query wants a %s", f.Name, f.Type, t))
	}
}

func mustHave(f collectors.Family, labels ...string) {
	for _, label := range labels {
		if label != "instance" && !slices.Contains(f.Labels, label) {
			panic(fmt.Sprintf("dashboards: %s has no label %s", f.Name, label))
		}
	}
}
