// SPDX-License-Identifier: Apache-2.0

// Rig measures the plane beside other carriers of the same streams, and beside the Rust
// velo node (make bench-plane). README.md says how.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/results"
	"github.com/velo-agent/velo-agent/tests/rig/side"
)

func main() {
	if role := side.Role(); role != "" {
		side.Serve(role)
		return
	}
	setup := flag.Bool("anchor", false, "measure set-up alone, anchors and life cycles (make bench-anchor)")
	short := flag.Bool("short", false, "some ten minutes: the cases that the goals are about; with -anchor one")
	names := flag.String("cases", "", "`CASES` with commas, such as 2048x64-paced-peer,256x918-back-to-back-stream")
	carriers := flag.String("carriers", "", "`CARRIERS` with commas, such as velo,plane/push; plane is both of its interfaces")
	slack := flag.Float64("slack", 1, "how many times worse than its goal a figure may be: few repetitions on a busy machine show gross faults alone (make test)")
	reps := flag.Int("reps", 3, "repetitions of each carrier in each case")
	dir := flag.String("out", "../../build/results", "`FOLDER` of the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	target, measure := "bench-plane", func(r *rig, arms []arm) error { return r.carriers(ctx, arms, *short, *names) }
	if *setup {
		target, measure = "bench-anchor", func(r *rig, arms []arm) error { return r.anchors(ctx, arms, *short) }
	}
	rig := &rig{out: results.New(target), reps: *reps, slack: *slack}
	if err := run(ctx, rig, *carriers, measure); err != nil {
		rig.out.Fail(err.Error())
	}
	if err := writeFigures(*dir, target, rig.figures); err != nil {
		rig.out.Fail(err.Error())
	}
	stop()
	os.Exit(rig.out.Finish(os.Stdout, *dir))
}

func run(ctx context.Context, r *rig, carriers string, measure func(*rig, []arm) error) error {
	arms, err := chooseArms(carriers)
	if err != nil {
		return err
	}
	return measure(r, r.build(ctx, arms))
}

// carriers measures the carriers of streams.
func (r *rig) carriers(ctx context.Context, arms []arm, short bool, names string) error {
	cases, err := chooseCases(short, names)
	if err != nil {
		return err
	}
	if err := raiseFiles(cases, arms); err != nil {
		return err
	}
	for _, c := range cases {
		m, err := r.measure(ctx, c, arms)
		if err != nil {
			return err
		}
		m.print(os.Stdout, columns, m.remark)
		r.judge(m)
		r.figures = append(r.figures, m.figures()...)
	}
	return nil
}

// raiseFiles lets a process have a connection for each stream.
func raiseFiles(cases []testCase, arms []arm) error {
	const others = 256
	var need uint64
	for _, c := range cases {
		if tcp := (arm{carrier: "tcp"}); slices.Contains(arms, tcp) && tcp.takesPart(c) {
			need = max(need, uint64(c.streams)+others)
		}
	}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if r.Cur >= need {
		return nil
	}
	r.Cur, r.Max = need, max(r.Max, need)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Errorf("raising the limit of open files to %d: %w: run as root, or leave tcp out", need, err)
	}
	return nil
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
