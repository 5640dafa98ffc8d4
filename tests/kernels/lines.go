// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/velo-agent/velo-agent/tests/results"
)

// Line is one line of the guest program's standard output: a rung that it tried
// or a case that it measured.
type Line struct {
	Rung *Rung         `json:"rung,omitempty"`
	Case *results.Case `json:"case,omitempty"`
}

// Rung is one rung of one signal, tried alone on the guest's kernel.
type Rung struct {
	Signal string `json:"signal"`
	Name   string `json:"name"`
	Why    string `json:"why,omitempty"` // why it does not hold; empty: it holds
}

// Lines reads a guest's standard output, one JSON object on each line.
func Lines(stdout string) ([]Line, error) {
	var out []Line
	sc := bufio.NewScanner(strings.NewReader(stdout))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l Line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			return out, fmt.Errorf("reading the line %q: %w", sc.Text(), err)
		}
		out = append(out, l)
	}
	if err := sc.Err(); err != nil {
		return out, fmt.Errorf("reading the guest's lines: %w", err)
	}
	return out, nil
}
