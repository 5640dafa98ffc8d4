// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

func TestApportionAddsUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		parts := make([]time.Duration, 1+rng.IntN(9))
		for i := range parts {
			parts[i] = time.Duration(rng.Int64N(1 << uint(1+rng.IntN(58))))
		}
		parts[0]++ // not all 0
		sum := 0
		for _, n := range apportion(parts, shareUnits) {
			sum += n
		}
		if sum != shareUnits {
			t.Fatalf("%v: %d units", parts, sum)
		}
	}
}

// The shares of a port are multiples of 0.0001 that add up to 1, also where stages
// were not measured, or sum to more than the whole.
func TestSharesAddUp(t *testing.T) {
	for name, change := range map[string]func(*Port){
		"whole":          func(*Port) {},
		"no unexplained": func(p *Port) { p.Stages[attribution.Unexplained] = StageTimes{} },
		"no wake_to_run": func(p *Port) { p.Stages[attribution.WakeToRun] = StageTimes{} },
		"read in between": func(p *Port) {
			p.Stages[attribution.Engine].TTFT.Add(time.Second)
			p.Stages[attribution.Engine].Gap.Add(time.Second)
		},
		"one stage only": func(p *Port) {
			p.Stages = [attribution.NumStages]StageTimes{attribution.SendQueue: p.Stages[attribution.SendQueue]}
		},
	} {
		m := healthy()
		change(&m.Ports[0])
		var ttft, gap, ttftSum float64
		for _, s := range Build(m).Ports[0].Stages {
			if s.TTFT != nil {
				ttft += s.TTFT.Share * shareUnits
				ttftSum += s.TTFT.Sum
			}
			if s.Gap != nil {
				gap += s.Gap.Share * shareUnits
			}
		}
		if math.Round(ttft) != shareUnits || math.Round(gap) != shareUnits || math.Abs(ttft-shareUnits) > 1e-6 {
			t.Errorf("%s: TTFT shares are %v, gap shares %v of %d", name, ttft, gap, shareUnits)
		}
		if whole := Build(m).Ports[0].TTFT.Sum; ttftSum < whole-1e-6 {
			t.Errorf("%s: stages sum to %v s of %v s", name, ttftSum, whole)
		}
	}
}

// Where nothing was measured there is no stage, not one of 0.
func TestStagesAbsent(t *testing.T) {
	r := Build(unprivileged())
	p := r.Ports[0]
	if len(p.Stages) != 0 || p.TTFT != nil || p.Exchanges != nil || p.Loss != nil || p.ExchangesAre != "" {
		t.Errorf("an unprivileged run reports %+v", p)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 500: "<1 µs", 1000: "1.00 µs", 12_345: "12.3 µs", 99_960: "100 µs", 999_400: "999 µs", 999_600: "1.00 ms",
		1_342_000: "1.34 ms", 999_600_000: "1.00 s", 1_342_000_000: "1.34 s", 275 * time.Second: "275 s", -2 * time.Second: "-2.00 s",
		3912 * time.Second: "3912 s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%d) is %q, want %q", int64(d), got, want)
		}
	}
	for v, want := range map[float64]string{0: "0 %", 1: "100 %", 0.9020: "90.2 %", 0.0001: "<0.1 %", 0.5: "50 %"} {
		if got := percent(v); got != want {
			t.Errorf("percent(%v) is %q, want %q", v, got, want)
		}
	}
	if got := count(1234567); got != "1,234,567" {
		t.Errorf("count is %q", got)
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		start, length float64
		want          string
	}{
		{0, 1, "████████"},
		{0.5, 0.5, "    ████"},
		{0, 0, ""},
		{0, 0.0001, "▏"},
		{1, 0.0001, "       ▏"},
		{0.9999, 0.0001, "       ▏"},
		{0, 0.5625, "████▌"},
		{2, 1, "       █"},
	} {
		if got := bar(c.start, c.length, 8); got != c.want {
			t.Errorf("bar(%v, %v) is %q, want %q", c.start, c.length, got, c.want)
		}
	}
}
