// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsTaken: where a family is registered already, the mux says so.
func TestMetricsTaken(t *testing.T) {
	r := prometheus.NewRegistry()
	if _, err := NewMetrics(r); err != nil {
		t.Fatal(err)
	}
	if families, err := r.Gather(); err != nil || len(families) != 22 {
		t.Errorf("it shows %d families (%v), want 22", len(families), err)
	}
	_, err := NewMetrics(r)
	if !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		t.Fatalf("a second mux on one registry: %v", err)
	}
	for _, want := range []string{"registering the metrics of the mux", "its own registry", "WrapRegistererWith"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it says %q, want %q in it", err, want)
		}
	}
}
