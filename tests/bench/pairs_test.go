// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"testing"
)

// A machine that grows slower all the time: the pairs take that away.
func TestPairsTakeAwayDrift(t *testing.T) {
	for _, share := range []bool{false, true} {
		drift, cost := 0.0, 0.0
		arm := func(name string, c float64) Arm[float64] {
			return Arm[float64]{
				Name: name,
				On:   func() error { cost = c; return nil },
				Off:  func() error { cost = 0; return nil },
				Measure: func(on bool) (float64, error) {
					drift++
					return 100 + drift + cost, nil
				},
			}
		}
		p := Pairs[float64]{
			Rounds: 3, Arms: []Arm[float64]{arm("null", 0), arm("dear", 2)}, Share: share,
			Others: func() (int, error) { return 0, nil },
		}
		got, err := p.Run(Rand(1))
		if err != nil {
			t.Fatal(err)
		}
		same := func(x float64) float64 { return x }
		for name, want := range map[string]float64{"null": 0, "dear": 2} {
			added := Added(got[name], same)
			if len(added) != p.Rounds {
				t.Fatalf("%s: %d pairs", name, len(added))
			}
			for _, a := range added {
				if math.Abs(a-want) > 1e-9 {
					t.Errorf("%s adds %v, want %v", name, a, want)
				}
			}
		}
		if r := Relative(got["null"], same); math.Abs(r[0]-1) > 1e-9 {
			t.Errorf("null is %v of off", r[0])
		}
		if want := map[bool]float64{false: 18, true: 13}[share]; drift != want {
			t.Errorf("shared %v: %v measurements, want %v", share, drift, want)
		}
	}
}

func TestPairsRepeatWhenOthersAttach(t *testing.T) {
	calls := 0
	nothing := func() error { return nil }
	p := Pairs[float64]{
		Rounds: 1,
		Arms:   []Arm[float64]{{"null", nothing, nothing, func(bool) (float64, error) { return 1, nil }}},
		Others: func() (int, error) { // somebody attaches during the third slice
			calls++
			return min(calls/6, 1), nil
		},
	}
	if _, err := p.Run(Rand(1)); err != nil {
		t.Fatal(err)
	}
	if p.Repeated != 1 {
		t.Errorf("%d pairs were repeated, want 1", p.Repeated)
	}
}
