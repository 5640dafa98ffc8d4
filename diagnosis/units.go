// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// span writes a duration with three significant digits: "0", "<1 µs", "12.3 µs",
// "1.21 s".
func span(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < 0:
		return "-" + span(-d)
	case d < time.Microsecond:
		return "<1 µs"
	}
	v, unit := float64(d)/1e3, "µs"
	if digits(v) == "1000" {
		v, unit = float64(d)/1e6, "ms"
	}
	if unit == "ms" || v >= 1e3 {
		v, unit = float64(d)/1e6, "ms"
		if digits(v) == "1000" || v >= 1e3 {
			v, unit = float64(d)/1e9, "s"
		}
	}
	return digits(v) + " " + unit
}

// digits writes v with three significant digits, or as a whole number where it
// has more.
func digits(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// seconds is span of a report's field.
func seconds(s float64) string { return span(toDuration(s)) }

func toDuration(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// percent writes a share: "12.3 %", "100 %", "0 %", "<0.1 %".
func percent(share float64) string {
	switch v := math.Round(share * 1000); {
	case share > 0 && v == 0:
		return "<0.1 %"
	case math.Mod(v, 10) == 0:
		return fmt.Sprintf("%.0f %%", v/10)
	default:
		return fmt.Sprintf("%.1f %%", v/10)
	}
}

// count writes a number with thousands separated: "3,912".
func count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rate writes a number a second.
func rate(v float64) string {
	if v >= 999.5 {
		return count(uint64(math.Round(v)))
	}
	return digits(v)
}

// counted writes "1 exchange", "2 exchanges".
func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

// size writes bytes: "512 B", "31.2 MiB".
func size(b uint64) string {
	v, unit := float64(b), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	if unit == "B" {
		return strconv.FormatUint(b, 10) + " B"
	}
	return digits(v) + " " + unit
}

// wrap breaks text at spaces so that no line is longer than width, words that are
// longer by themselves excepted.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range words(text) {
		switch {
		case line == "":
			line = word
		case runes(line)+1+runes(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// words splits text at spaces, but not between a number and its unit.
func words(text string) []string {
	var out []string
	for _, w := range strings.Fields(text) {
		last := len(out) - 1
		if last >= 0 && isUnit(w) && out[last][len(out[last])-1] >= '0' && out[last][len(out[last])-1] <= '9' {
			out[last] += " " + w
			continue
		}
		out = append(out, w)
	}
	return out
}

func isUnit(w string) bool {
	switch strings.TrimRight(w, ".,;:)") {
	case "%", "ns", "µs", "ms", "s", "B", "KiB", "MiB", "GiB", "TiB":
		return true
	}
	return false
}

// runes is the width of s on a screen, wide characters excepted.
func runes(s string) int { return len([]rune(s)) }

// cut shortens s to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:max(n-1, 0)]) + "…"
	}
	return s
}

// pad fills s to n characters on the right; padLeft on the left.
func pad(s string, n int) string     { return s + strings.Repeat(" ", max(n-runes(s), 0)) }
func padLeft(s string, n int) string { return strings.Repeat(" ", max(n-runes(s), 0)) + s }
