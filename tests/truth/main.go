// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/tests/results"
)

func main() {
	short := flag.Bool("short", false, "fewer cases and samples: a minute and a half")
	only := flag.String("only", "", "run the cases whose name contains this")
	samples := flag.Int("samples", 0, "pairs of each case (default 200)")
	verbose := flag.Bool("v", false, "print how each stage moved, on average")
	dir := flag.String("results", "build/results", "where the JSON goes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := results.New("truth")
	for _, c := range cases() {
		if (*short && !c.short) || !strings.Contains(c.name, *only) {
			continue
		}
		n := c.samples(*short)
		if *samples > 0 {
			n = *samples
		}
		r.Attempt(pick(*short, 3, 1), func(r *results.Run) { c.measure(ctx, r, n, *short, *verbose) })
	}
	if strings.Contains("clock", *only) {
		// Of what is allowed to the median the width of its bucket may take two thirds, so
		// that a short run beside busy neighbours misses it one time in six.
		r.Attempt(pick(*short, 5, 1), func(r *results.Run) {
			if err := clock(ctx, r, pick(*short, 10, 40)); err != nil {
				r.Fail("the clients' clock: " + err.Error())
			}
		})
	}
	code := r.Finish(os.Stdout, *dir)
	stop()
	os.Exit(code)
}

// measure runs one case and records its verdict.
func (c *testCase) measure(ctx context.Context, r *results.Run, n int, short, verbose bool) {
	began := time.Now()
	pairs, rung, err := c.run(ctx, n)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%-50s %v\n", c.name, err)
		r.Skip(c.name, "ratio", lowest, results.Higher, err.Error())
		r.Fail(c.name + ": " + err.Error())
		return
	}
	judged := pairs
	if short {
		judged = middle(c.stages, pairs)
	}
	s := judge(c.stages, judged)
	fmt.Fprintf(os.Stderr, "%-50s %.3f  within %.2f  others %.3f  unexplained %.3f  n %d  %s\n",
		c.name, s.ratio, s.within, s.others, s.unexplained, s.samples, time.Since(began).Round(100*time.Millisecond))
	if verbose {
		for st := range attribution.NumStages {
			var on, off time.Duration
			for _, p := range pairs {
				on += p.on.stages.Stages[st]
				off += p.off.stages.Stages[st]
			}
			n := time.Duration(len(pairs))
			fmt.Fprintf(os.Stderr, "  %-16s disturbed %v, undisturbed %v\n", st, on/n, off/n)
		}
	}
	s.record(r, c.name, rung, short)
}

func pick(on bool, yes, no int) int {
	if on {
		return yes
	}
	return no
}
