// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/attribution"
)

// row is one series of a family, or one histogram.
type row struct {
	labels    []string
	value     float64
	histogram *attribution.Histogram
	exemplars []Exemplar
}

// sink gathers the rows of one scrape, held to each family's budget.
type sink struct {
	families map[*Family][]row
	index    map[*Family]map[string]int
	folded   map[*Family]int
}

func newSink() *sink {
	return &sink{map[*Family][]row{}, map[*Family]map[string]int{}, map[*Family]int{}}
}

// overflow is the value of every label of the series that takes what is beyond the
// budget.
const overflow = "other"

// place returns the row of labels in f. Once the budget is used up the last row
// becomes the overflow's: it takes its own figures and all that find no room.
func (s *sink) place(f *Family, labels []string) *row {
	if s.index[f] == nil {
		s.index[f] = map[string]int{}
	}
	key := strings.Join(labels, "\x00")
	i, ok := s.index[f][key]
	switch {
	case ok:
	case len(s.families[f]) < f.Budget:
		i = len(s.families[f])
		s.families[f] = append(s.families[f], row{labels: labels})
	default:
		i = f.Budget - 1
		if s.folded[f] == 0 {
			s.folded[f] = 1 // whose row it was
			s.families[f][i].labels = slices.Repeat([]string{overflow}, len(f.Labels))
		}
		s.folded[f]++
	}
	s.index[f][key] = i
	return &s.families[f][i]
}

// add adds v to the series with the labels.
func (s *sink) add(f *Family, v float64, labels ...string) { s.place(f, labels).value += v }

// count adds a counter that may not have been measured.
func (s *sink) count(f *Family, v *uint64, labels ...string) {
	if v != nil {
		s.add(f, float64(*v), labels...)
	}
}

// observe adds a histogram that may not have been measured.
func (s *sink) observe(f *Family, h *attribution.Histogram, exemplars []Exemplar, labels ...string) {
	if h == nil {
		return
	}
	r := s.place(f, labels)
	if r.histogram == nil {
		r.histogram, r.exemplars = h, exemplars
		return
	}
	var sum attribution.Histogram
	sum.Merge(r.histogram)
	sum.Merge(h)
	r.histogram = &sum
}

// family makes f's family of values; nil where it has no row.
func (s *sink) family(f *Family) *dto.MetricFamily {
	rows := s.families[f]
	if len(rows) == 0 {
		return nil
	}
	out := &dto.MetricFamily{Name: &f.Name, Help: &f.Help, Type: f.Type.dto(), Metric: make([]*dto.Metric, len(rows))}
	for i := range rows {
		out.Metric[i] = f.metric(&rows[i])
	}
	return out
}

func (f *Family) metric(r *row) *dto.Metric {
	m := &dto.Metric{Label: f.pairs(r.labels)}
	switch f.Type {
	case Counter:
		m.Counter = &dto.Counter{Value: &r.value}
	case Gauge:
		m.Gauge = &dto.Gauge{Value: &r.value}
	case Histogram:
		m.Histogram = histogramOf(r)
	}
	return m
}

// pairs leaves out what is empty: to Prometheus it is the same, and half of the page.
func (f *Family) pairs(values []string) []*dto.LabelPair {
	slab := make([]dto.LabelPair, len(values))
	out := make([]*dto.LabelPair, 0, len(values))
	for i := range values {
		if values[i] != "" {
			slab[i].Name, slab[i].Value = &f.Labels[i], &values[i]
			out = append(out, &slab[i])
		}
	}
	return out
}

var byName = slices.SortedFunc(slices.Values(Table), func(a, b *Family) int { return strings.Compare(a.Name, b.Name) })

func (t Type) dto() *dto.MetricType {
	switch t {
	case Counter:
		return dto.MetricType_COUNTER.Enum()
	case Gauge:
		return dto.MetricType_GAUGE.Enum()
	}
	return dto.MetricType_HISTOGRAM.Enum()
}
