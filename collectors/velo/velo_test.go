// SPDX-License-Identifier: Apache-2.0

package velo

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/collectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ours is what the names of families begin with that velo does not have.
const ours = "velo_agent_"

// theirs is a family as the pinned crate declares it.
type theirs struct {
	Name, Type string
	Labels     []string
	Buckets    []float64
	Values     map[string][]string // by label, or by two with a slash between
}

func crate(t *testing.T) map[string]*theirs {
	t.Helper()
	b, err := os.ReadFile("../../tests/interop/metrics-0.21.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []*theirs
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]*theirs{}
	for _, f := range list {
		slices.Sort(f.Labels)
		all[f.Name] = f
	}
	return all
}

// TestFamiliesAreVelos: what a node registers is velo's by name, type, labels, buckets and
// values of labels, or is named as ours.
func TestFamiliesAreVelos(t *testing.T) {
	list, err := registered()
	if err != nil {
		t.Fatal(err)
	}
	all := crate(t)
	for _, f := range list {
		t.Run(f.GetName(), func(t *testing.T) {
			want := all[f.GetName()]
			if strings.HasPrefix(f.GetName(), ours) {
				if want != nil {
					t.Error("velo has it too: it is not ours")
				}
				return
			}
			if want == nil {
				t.Fatalf("velo has no such family: its name must begin with %s", ours)
			}
			if got := strings.ToLower(f.GetType().String()); got != want.Type {
				t.Errorf("it is a %s, velo's a %s", got, want.Type)
			}
			if got := labelsOf(f); !slices.Equal(got, want.Labels) {
				t.Errorf("it has the labels %v, velo's %v", got, want.Labels)
			}
			for _, m := range f.Metric {
				want.compare(t, m)
			}
		})
	}
}

func (w *theirs) compare(t *testing.T, m *dto.Metric) {
	t.Helper()
	var bounds []float64
	for _, b := range m.GetHistogram().GetBucket() {
		bounds = append(bounds, b.GetUpperBound())
	}
	if !slices.Equal(bounds, w.Buckets) {
		t.Errorf("it has the buckets %v, velo's %v", bounds, w.Buckets)
	}
	for _, l := range m.Label {
		if known := w.Values[l.GetName()]; known != nil && l.GetValue() != "" && !slices.Contains(known, l.GetValue()) {
			t.Errorf("%s is %q, velo knows %v", l.GetName(), l.GetValue(), known)
		}
	}
}

// TestAbsent: each family of velo is registered, or it is said why not.
func TestAbsent(t *testing.T) {
	left := crate(t)
	for _, f := range Table() {
		delete(left, f.Name)
	}
	for _, m := range Absent {
		if !strings.HasSuffix(m.Why, ".") {
			t.Errorf("of %v it is not said why, in a sentence", m.Names)
		}
		for _, name := range m.Names {
			if left[name] == nil {
				t.Errorf("%s is registered, or velo does not have it", name)
			}
			delete(left, name)
		}
	}
	for name := range left {
		t.Errorf("%s is not registered, and it is not said why", name)
	}
}

func TestLook(t *testing.T) {
	for name, text := range Look {
		if !slices.ContainsFunc(Table(), func(f *collectors.Family) bool { return f.Name == name }) || !strings.HasSuffix(text, ".") {
			t.Errorf("%s is not registered, or what to look at is no sentence", name)
		}
	}
}

// TestNames: what every family owes Prometheus, whoever named it.
func TestNames(t *testing.T) {
	for _, f := range Table() {
		if total := strings.HasSuffix(f.Name, "_total"); total != (f.Type == "counter") {
			t.Errorf("%s is a %s: counters, and they alone, end in _total", f.Name, f.Type)
		}
		if !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s has no sentence of help", f.Name)
		}
	}
}

func TestOfUnknown(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a family that is not there was found")
		}
	}()
	Of("velo_streaming_mux_livre_slots")
}
