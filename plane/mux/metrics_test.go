// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// nearlyFull takes so many families more.
type nearlyFull struct {
	*prometheus.Registry
	left int
}

var errFull = errors.New("full")

func (r *nearlyFull) Register(c prometheus.Collector) error {
	if r.left--; r.left < 0 {
		return errFull
	}
	return r.Registry.Register(c)
}

// TestMetricsTaken: where a family cannot be registered, the mux says so and leaves
// nothing behind.
func TestMetricsTaken(t *testing.T) {
	for _, left := range []int{0, 1, 15, 21} {
		r := prometheus.NewRegistry()
		_, err := NewMetrics(&nearlyFull{r, left})
		if !errors.Is(err, errFull) {
			t.Fatalf("a registry with room for %d: %v", left, err)
		}
		for _, want := range []string{"registering the metrics of the mux", "its own registry", "WrapRegistererWith"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("it says %q, want %q in it", err, want)
			}
		}
		if families, err := r.Gather(); err != nil || len(families) != 0 {
			t.Errorf("a registry with room for %d has %d families left (%v)", left, len(families), err)
		}
		if _, err := NewMetrics(r); err != nil {
			t.Errorf("and takes no others: %v", err)
		}
		if families, err := r.Gather(); err != nil || len(families) != 22 {
			t.Errorf("it shows %d families (%v), want 22", len(families), err)
		}
	}
}
