// SPDX-License-Identifier: Apache-2.0

package top

import (
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/charmbracelet/lipgloss"
)

// absent is what stands for a figure that was not measured.
const absent = "-"

// span writes seconds with so many significant digits, without a blank, for the
// cells of a table: "0", "<1µs", "27.5µs", "1.32s".
func span(s float64, digits int) string {
	us := s * 1e6
	switch {
	case us <= 0:
		return "0"
	case us < 1:
		return "<1µs"
	}
	text := significant(us, digits) + "µs"
	for _, u := range []struct {
		scale float64
		name  string
	}{{1e3, "ms"}, {1e6, "s"}} {
		if us/u.scale >= 0.9995 {
			text = significant(us/u.scale, digits) + u.name
		}
	}
	return text
}

// significant writes v with so many significant digits, or as a whole number where
// it has more.
func significant(v float64, digits int) string {
	decimals := digits - 1
	for limit := 10.0; decimals > 0 && v >= limit-0.5*math.Pow10(-decimals); limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// number writes a count in at most 4 columns: "9999", "33k", "1.2M".
func number(n uint64) string {
	if n < 10_000 {
		return strconv.FormatUint(n, 10)
	}
	v := float64(n)
	unit := ""
	for _, unit = range []string{"k", "M", "G", "T", "P", "E"} {
		if v /= 1000; v < 999.5 {
			break
		}
	}
	return significant(v, 2) + unit
}

// perSecond writes a rate in at most 4 columns.
func perSecond(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.01:
		return "<.01"
	case v < 999.5:
		return significant(v, 3)
	}
	return number(uint64(math.Round(v)))
}

func share(v float64) string {
	if v > 0 && v < 0.005 {
		return "<1%"
	}
	return strconv.FormatFloat(100*v, 'f', 0, 64) + "%"
}

var asciiFor = strings.NewReplacer("µ", "u", "·", "|", "…", "~", "→", ">", "▲", "^", "▼", "v")

// ascii replaces our own signs by ASCII of the same width and every other letter
// by '?'.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r > 0x7e {
			return '?'
		}
		return r
	}, asciiFor.Replace(s))
}

// harmless makes what others wrote one line without control characters. A report is
// harmless already; the text of an error is not.
func harmless(s string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(s), " ") {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// fit cuts a line, which may hold colours, to so many columns.
func fit(line string, width int) string {
	if width <= 0 {
		return "" // to lipgloss 0 is no bound
	}
	if lipgloss.Width(line) <= width {
		return line
	}
	return lipgloss.NewStyle().Inline(true).MaxWidth(width).Render(line)
}

// cell makes s exactly so many columns wide.
func cell(s string, width int, right bool) string {
	if lipgloss.Width(s) > width {
		s = fit(s, max(width-1, 0)) + "…"
	}
	blank := strings.Repeat(" ", max(width-lipgloss.Width(s), 0))
	if right {
		return blank + s
	}
	return s + blank
}

// wrap breaks a sentence at blanks.
func wrap(s string, width int) []string {
	lines := strings.Split(lipgloss.NewStyle().Width(width).Render(s), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// The colours of the 16 that every terminal has.
const (
	bold    = "1"
	reverse = "7"
	red     = "1;31"
	yellow  = "33"
	blue    = "34"
	grey    = "90"
)

// paint colours s where colours are wanted.
func (o *Options) paint(code, s string) string {
	if !o.Color || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// plain is s as the terminal can show it.
func (o *Options) plain(s string) string {
	if o.ASCII {
		return ascii(s)
	}
	return s
}
