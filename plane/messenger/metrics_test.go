// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/plane/transport"
)

// TestMetricsAreVelos compares names, types, labels and buckets with those of velo itself.
func TestMetricsAreVelos(t *testing.T) {
	registry := prometheus.NewRegistry()
	of, err := transport.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	newNode(t, "tcp", Options{Transport: transport.Options{Metrics: of}, Metrics: m}).Handle("x", echo)
	m.failed("decode", "active_message")
	m.resolved("direct", "success")
	ours := map[string]*dto.MetricFamily{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		ours[f.GetName()] = f
	}

	b, err := os.ReadFile("../../tests/interop/metrics-0.21.json")
	if err != nil {
		t.Fatal(err)
	}
	var velos []struct {
		Name, Type string
		Labels     []string
		Buckets    []float64
	}
	if err := json.Unmarshal(b, &velos); err != nil {
		t.Fatal(err)
	}
	for _, v := range velos {
		if !strings.HasPrefix(v.Name, "velo_transport_") && !strings.HasPrefix(v.Name, "velo_messenger_") ||
			strings.Contains(v.Name, "_ordered_lane") {
			continue
		}
		f := ours[v.Name]
		if f == nil {
			t.Errorf("%s is missing", v.Name)
			continue
		}
		delete(ours, v.Name)
		if got := strings.ToLower(f.GetType().String()); got != v.Type {
			t.Errorf("%s is a %s, want a %s", v.Name, got, v.Type)
		}
		series := f.GetMetric()[0]
		var labels []string
		for _, l := range series.GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(v.Labels)
		if !slices.Equal(labels, v.Labels) {
			t.Errorf("%s has the labels %v, want %v", v.Name, labels, v.Labels)
		}
		var buckets []float64
		for _, b := range series.GetHistogram().GetBucket() {
			buckets = append(buckets, b.GetUpperBound())
		}
		if !slices.Equal(buckets, v.Buckets) {
			t.Errorf("%s has the buckets %v, want %v", v.Name, buckets, v.Buckets)
		}
	}
	for name := range ours {
		t.Errorf("%s is none of velo's", name)
	}
}
