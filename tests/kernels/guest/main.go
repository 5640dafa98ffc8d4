// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command guest tries the agent on the kernel that it runs on and prints JSON
// lines (kernels.Line): which rung of each signal holds, whether positions equal
// the bytes that were sent, in which stage a delay of a server lands, and what
// was lost. It is its own server and client. No figure of it is a cost.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/velo-agent/velo-agent/tests/kernels"
	"github.com/velo-agent/velo-agent/tests/results"
)

func main() {
	if os.Getenv(serveEnv) != "" {
		exit(serve(os.Stdin, os.Stdout))
	}
	samples := flag.Int("samples", 10, "disturbed exchanges of each injection, beside as many undisturbed ones")
	flag.Parse()
	exit(measure(context.Background(), os.Stdout, *samples))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// lines writes what was found.
type lines struct {
	enc *json.Encoder
	err error
}

func (l *lines) line(v kernels.Line) {
	if l.err == nil {
		l.err = l.enc.Encode(v)
	}
}

// add judges a case for which more is better.
func (l *lines) add(name string, value float64, unit string, goal float64, samples int, note string) {
	pass := value >= goal
	l.line(kernels.Line{Case: &results.Case{Name: name, Value: &value, Unit: unit, Goal: goal, Better: results.Higher, Pass: &pass, Samples: samples, Note: note}})
}

// none judges a count that is wanted to be nought.
func (l *lines) none(name string, count uint64, unit, note string) {
	value, pass := float64(count), count == 0
	l.line(kernels.Line{Case: &results.Case{Name: name, Value: &value, Unit: unit, Better: results.Lower, Pass: &pass, Samples: 1, Note: note}})
}

// measure tries every rung alone and then runs as many rounds as the longest
// ladder has rungs that hold, each with other rungs.
func measure(ctx context.Context, w io.Writer, samples int) error {
	out := &lines{enc: json.NewEncoder(w)}
	ladders, err := tryRungs(out)
	if err != nil {
		return err
	}
	rounds := 0
	for _, l := range ladders {
		rounds = max(rounds, len(l.holds))
	}
	for n := range rounds {
		if err := round(ctx, out, ladders, n, samples); err != nil {
			return fmt.Errorf("measuring with rung %d of each signal: %w", n+1, err)
		}
	}
	return out.err
}
