// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"math"
	"strings"
)

// eighths of a character cell, from the left.
var eighths = []rune("▏▎▍▌▋▊▉█")

// bar draws [start, start+length) of a whole of 1 on width cells. The beginning is
// rounded to a cell, the end to an eighth; what is shorter than a cell keeps its
// length instead. What is not 0 is never invisible.
func bar(start, length float64, width int) string {
	if length <= 0 || width <= 0 || math.IsNaN(start+length) {
		return ""
	}
	from := min(int(start*float64(width)+1e-9), width-1)
	units := int(math.Round((start+length)*float64(width)*8)) - from*8
	if length*float64(width) < 1 {
		units = int(math.Round(length * float64(width) * 8))
	}
	units = min(max(units, 1), (width-from)*8)
	b := strings.Repeat(" ", from) + strings.Repeat("█", units/8)
	if rest := units % 8; rest > 0 {
		b += string(eighths[rest-1])
	}
	return b
}

// waterfall is the table of one partition: each stage's bar begins where the bars
// before it ended, by mean time, so that the last one ends at the whole.
func (t *text) waterfall(title string, rows []row) {
	const name, figures = 16, 4 * 9
	width := t.width - 2 - name - figures
	t.line("  " + t.paint("1", pad(title, name+width)) + padLeft("mean", 9) + padLeft("p50", 9) + padLeft("p99", 9) + padLeft("share", 9))
	whole := total(rows)
	for _, r := range rows {
		drawn := bar(r.start/whole, r.mean/whole, width-1)
		t.line("  " + pad(r.stage, name) + t.paint(stageColour(r.stage), pad(drawn, width)) +
			padLeft(seconds(r.mean), 9) + padLeft(optional(r.share.P50), 9) + padLeft(optional(r.share.P99), 9) +
			padLeft(r.percent, 9))
	}
	t.line("  " + pad("sum", name+width) + padLeft(seconds(whole), 9) + padLeft("", 18) + padLeft("100 %", 9))
}

// stageColour tells the host's stages from the engine's.
func stageColour(stage string) string {
	switch stage {
	case "engine":
		return "34" // blue
	case "unexplained":
		return "90" // grey
	}
	return "33" // yellow
}
