// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

func TestCount(t *testing.T) {
	page := func(byPort map[string]float64) live.Page {
		f := &dto.MetricFamily{}
		for port, v := range byPort {
			f.Metric = append(f.Metric, &dto.Metric{
				Label:   []*dto.LabelPair{{Name: new("port"), Value: &port}},
				Counter: &dto.Counter{Value: &v},
			})
		}
		return live.Page{"velo_agent_exchanges_total": f}
	}
	c := &count{last: map[string]float64{}}
	for _, step := range []struct {
		name  string
		now   map[string]float64
		sum   float64
		given int
	}{
		{"begins", map[string]float64{"1": 5, "2": 7}, 12, 0},
		{"grows", map[string]float64{"1": 6, "2": 7}, 13, 0},
		{"one is given up", map[string]float64{"2": 9}, 15, 1},
		{"it comes back", map[string]float64{"1": 20, "2": 9}, 35, 1},
		{"it begins anew, unseen", map[string]float64{"1": 3, "2": 9}, 38, 2},
	} {
		c.add(page(step.now))
		if c.sum != step.sum || c.given != step.given {
			t.Errorf("%s: %v exchanges, given up %d times, want %v and %d", step.name, c.sum, c.given, step.sum, step.given)
		}
	}
}
