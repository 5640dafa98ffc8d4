// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// page is a parsed page of metrics.
type page map[string]*dto.MetricFamily

func parse(body string) (page, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(strings.NewReader(body))
}

// metrics scrapes the daemon. The page may be some seconds old.
func (d *daemon) metrics() (page, error) {
	status, body, err := get(d.tcp, "/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %d: %.200s", status, body)
	}
	return parse(body)
}

// value adds up the series of the family whose labels have the given values (name,
// value, name, value, …; "": there is no such label). ok is false where there is none.
func (p page) value(family string, labels ...string) (sum float64, ok bool) {
	for _, m := range p[family].GetMetric() {
		if has(m, labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			ok = true
		}
	}
	return sum, ok
}

func has(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		value := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == labels[i] {
				value = l.GetValue()
			}
		}
		if value != labels[i+1] {
			return false
		}
	}
	return true
}

// becomes waits until the metric has the value.
func (d *daemon) becomes(t *testing.T, want float64, family string, labels ...string) {
	t.Helper()
	d.fulfils(t, fmt.Sprintf("%s%v = %v", family, labels, want), func(v float64) bool { return v == want }, family, labels...)
}

func (d *daemon) fulfils(t *testing.T, what string, content func(float64) bool, family string, labels ...string) {
	t.Helper()
	eventually(t, what, patience, func() error {
		p, err := d.metrics()
		if err != nil {
			return err
		}
		v, ok := p.value(family, labels...)
		if !ok || !content(v) {
			return fmt.Errorf("it is %v (there: %v)", v, ok)
		}
		return nil
	})
}

// now reads one metric, which must be there.
func (d *daemon) now(t *testing.T, family string, labels ...string) float64 {
	t.Helper()
	p, err := d.metrics()
	if err != nil {
		t.Fatal(err)
	}
	v, ok := p.value(family, labels...)
	if !ok {
		t.Fatalf("no %s%v", family, labels)
	}
	return v
}
