// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// reason is one line of the list of allowed skips: a piece of the test's name, and
// a piece of what it said.
type reason struct{ test, said string }

// readReasons reads "TEST | SAID" lines; # begins a comment, which says why the
// reason is legitimate. An empty TEST fits every test.
func readReasons(name string) ([]reason, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the allowed skips: %w", err)
	}
	var out []reason
	for i, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimRight(line, " \t"); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		test, said, ok := strings.Cut(line, " | ")
		if !ok || strings.TrimSpace(said) == "" {
			return nil, fmt.Errorf("%s:%d: want \"TEST | SAID\"", name, i+1)
		}
		out = append(out, reason{strings.TrimSpace(test), strings.TrimSpace(said)})
	}
	return out, nil
}

// legitimate reports whether some allowed reason fits.
func legitimate(reasons []reason, test, said string) bool {
	for _, r := range reasons {
		if strings.Contains(test, r.test) && strings.Contains(said, r.said) {
			return true
		}
	}
	return false
}
