// SPDX-License-Identifier: Apache-2.0

package top

import (
	"math"
	"testing"

	"github.com/charmbracelet/lipgloss"
)

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		s             float64
		three, narrow string
	}{
		{0, "0", "0"},
		{2e-7, "<1µs", "<1µs"},
		{1e-6, "1.00µs", "1.0µs"},
		{27.46e-6, "27.5µs", "27µs"},
		{999.4e-6, "999µs", "999µs"},
		{999.9e-6, "1.00ms", "1.0ms"},
		{9.996e-3, "10.0ms", "10ms"},
		{0.108, "108ms", "108ms"},
		{1.2149, "1.21s", "1.2s"},
		{99.96, "100s", "100s"},
		{1234, "1234s", "1234s"},
	} {
		if got := span(c.s, 3); got != c.three {
			t.Errorf("%v is %q, want %q", c.s, got, c.three)
		}
		if got := span(c.s, 2); got != c.narrow {
			t.Errorf("%v is %q in the narrow table, want %q", c.s, got, c.narrow)
		}
	}
}

func TestFourColumns(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 9999: "9999", 10_000: "10k", 33_400: "33k", 999_499: "999k", 999_999: "1.0M", 1_250_000: "1.2M", math.MaxUint64: "18E",
	} {
		if got := number(n); got != want || len(got) > 4 {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.001: "<.01", 0.5: "0.50", 12.34: "12.3", 250: "250", 999.6: "1000", 123456: "123k"} {
		if got := perSecond(v); got != want {
			t.Errorf("%v a second is %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0%", 0.001: "<1%", 0.918: "92%", 1: "100%"} {
		if got := share(v); got != want {
			t.Errorf("a share of %v is %q, want %q", v, got, want)
		}
	}
}

func TestCell(t *testing.T) {
	for _, s := range []string{"", "abc", "abcdefgh", "\u65e5\u672c\u8a9e\u65e5\u672c", "e\u0301e\u0301", "\x1b[31mred and long\x1b[0m"} {
		for width := range 8 {
			if w := lipgloss.Width(cell(s, width+1, width%2 == 0)); w != width+1 {
				t.Errorf("a cell of %d columns for %q has %d", width+1, s, w)
			}
		}
	}
}
