// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"fmt"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// gather is one scrape of a snapshot, by family. No registry looks at it, so what one
// would refuse is looked for here: families and series that are there twice.
func gather(t *testing.T, x *Snapshot) map[string]*dto.MetricFamily {
	t.Helper()
	list, err := New(func() *Snapshot { return x }, nil).Gather()
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]*dto.MetricFamily{}
	for _, f := range list {
		if families[f.GetName()] != nil || len(f.Metric) == 0 {
			t.Errorf("%s is there twice, or empty", f.GetName())
		}
		families[f.GetName()] = f
		seen := map[string]bool{}
		for _, m := range f.Metric {
			if labels := fmt.Sprint(m.Label); seen[labels] {
				t.Errorf("%s has two series of %s", f.GetName(), labels)
			} else {
				seen[labels] = true
			}
		}
	}
	return families
}
