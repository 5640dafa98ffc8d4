// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// remedyFor says what was probably meant by an unknown name in a section.
func remedyFor(section, name string) string {
	// The right name, in the wrong section.
	for i := range keys {
		in, own := keys[i].split()
		switch normal(name) {
		case in:
			if section != "" {
				return "did you mean " + in + ", at the top?"
			}
		case own:
			return "did you mean " + keys[i].name + "?"
		}
	}
	known := namesIn(section)
	if near := nearest(name, known); near != "" {
		return "did you mean " + join(section, near) + "?"
	}
	where := "at the top"
	if section != "" {
		where = "in " + section
	}
	return fmt.Sprintf("%s there are %s", where, strings.Join(known, ", "))
}

// nearest returns the candidate that differs from the name in fewest letters, or ""
// where all of them are something else.
func nearest(name string, candidates []string) string {
	const longest = 64 // no key is nearly as long
	if len(name) > longest {
		return ""
	}
	best, least := "", 0
	for _, c := range candidates {
		d := distance(normal(name), c)
		if d <= 1+len(c)/4 && d < len(c)-1 && (best == "" || d < least) {
			best, least = c, d
		}
	}
	return best
}

// normal takes what other programs' configurations do differently out of a name.
func normal(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "-", "_")
}

// distance is how many bytes must be put in, left out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := before
			if a[i] != b[j] {
				changed++
			}
			before = row[j+1]
			row[j+1] = min(changed, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
