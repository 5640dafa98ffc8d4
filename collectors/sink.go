// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

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

// place returns the row of labels in f. Beyond the budget it is the overflow's.
func (s *sink) place(f *Family, labels []string) *row {
	if s.index[f] == nil {
		s.index[f] = map[string]int{}
	}
	key := strings.Join(labels, "\x00")
	i, ok := s.index[f][key]
	if !ok && len(s.families[f]) >= f.Budget {
		s.folded[f]++
		labels = make([]string, len(f.Labels))
		for i := range labels {
			labels[i] = overflow
		}
		key = strings.Join(labels, "\x00")
		i, ok = s.index[f][key]
	}
	if !ok {
		i = len(s.families[f])
		s.index[f][key] = i
		s.families[f] = append(s.families[f], row{labels: labels})
	}
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

// send hands everything to a scrape.
func (s *sink) send(out chan<- prometheus.Metric) {
	for _, f := range Table {
		for _, r := range s.families[f] {
			if f.Type == Histogram {
				out <- &histogram{f, r}
				continue
			}
			kind := prometheus.GaugeValue
			if f.Type == Counter {
				kind = prometheus.CounterValue
			}
			out <- prometheus.MustNewConstMetric(f.desc(), kind, r.value, r.labels...)
		}
	}
}
