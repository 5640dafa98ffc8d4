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
	families, last := map[string]*dto.MetricFamily{}, ""
	err := New(func() *Snapshot { return x }, nil).Each(func(f *dto.MetricFamily) error {
		if f.GetName() <= last {
			t.Errorf("%s comes after %s", f.GetName(), last)
		}
		last = f.GetName()
		families[last] = f
		seen := map[string]bool{}
		for _, m := range f.Metric {
			if labels := fmt.Sprint(m.Label); seen[labels] {
				t.Errorf("%s has two series of %s", last, labels)
			} else {
				seen[labels] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return families
}
