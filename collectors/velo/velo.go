// SPDX-License-Identifier: Apache-2.0

// Package velo knows the metric families of the response plane. They are velo's own, with
// its names, labels and buckets, and the packages of the plane, which need nothing of the
// agent, declare them. Here a node is asked what it registers, so that documents,
// dashboards and alert tests have them as rows of a table, as they have the agent's.
package velo

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/plane"
)

// Docs is the page of all of them.
const Docs = "plane.md#metrics"

// Table is every family that a node registers, by name. Labels are in the order of the
// page of metrics; the budget is 0: nothing is folded, as every label but handler has a few
// fixed values, and an application has a few handlers.
var Table = sync.OnceValue(func() []*collectors.Family {
	families, err := registered()
	if err != nil {
		panic(fmt.Sprintf("velo: asking a node for its metrics: %v", err))
	}
	var table []*collectors.Family
	for _, f := range families {
		table = append(table, &collectors.Family{
			Name: f.GetName(), Type: collectors.Type(strings.ToLower(f.GetType().String())), Unit: unitOf(f.GetName()),
			Labels: labelsOf(f), Help: f.GetHelp(), Source: "plane", Docs: Docs,
		})
	}
	return table
})

// Of is the row of a family. It panics where the plane has none of that name.
func Of(name string) collectors.Family {
	table := Table()
	i := slices.IndexFunc(table, func(f *collectors.Family) bool { return f.Name == name })
	if i < 0 {
		panic("velo: the plane has no metric " + name)
	}
	return *table[i]
}

func unitOf(name string) string {
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(strings.TrimSuffix(name, "_total"), "_"+unit) {
			return unit
		}
	}
	return ""
}

func labelsOf(f *dto.MetricFamily) (names []string) {
	for _, l := range f.Metric[0].Label {
		names = append(names, l.GetName())
	}
	return names
}

// registered is a scrape of a node that nobody knows, each family with a series at least.
func registered() ([]*dto.MetricFamily, error) {
	r := seeded{prometheus.NewRegistry()}
	n, err := plane.New(plane.Options{Metrics: r})
	if err != nil {
		return nil, err
	}
	families, err := r.Gather()
	if closing := n.Close(); err == nil {
		err = closing
	}
	return families, err
}

// seeded is a registry that gives each family with labels a series in which all of them
// are empty: a scrape does not show one that has none.
type seeded struct{ *prometheus.Registry }

func (r seeded) Register(c prometheus.Collector) error {
	seed(c)
	return r.Registry.Register(c)
}

func (r seeded) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		seed(c)
	}
	r.Registry.MustRegister(list...)
}

// mostLabels bounds the search for how many labels a family has.
const mostLabels = 8

func seed(c prometheus.Collector) {
	var with func(values ...string) error
	switch v := c.(type) {
	case *prometheus.CounterVec:
		with = func(values ...string) error { _, err := v.GetMetricWithLabelValues(values...); return err }
	case *prometheus.GaugeVec:
		with = func(values ...string) error { _, err := v.GetMetricWithLabelValues(values...); return err }
	case *prometheus.HistogramVec:
		with = func(values ...string) error { _, err := v.GetMetricWithLabelValues(values...); return err }
	default:
		return
	}
	for n := range mostLabels {
		if with(make([]string, n)...) == nil {
			return
		}
	}
	panic("velo: a family has too many labels")
}
