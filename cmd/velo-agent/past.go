// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// past answers diagnose --at and --diff from the record: the daemon's, or what a
// daemon left in its folder.
func past(c *cli.Context, w agent.Watch, length time.Duration) error {
	if c.IsSet("at") && c.IsSet("diff") {
		return usage(errors.New("--at and --diff exclude each other"))
	}
	if c.IsSet("diff") {
		return difference(c, w, length)
	}
	rec, err := recorded(c, w, c.String("at"), length)
	if err != nil {
		return err
	}
	r := diagnosis.Build(rec.Measured)
	if err := write(c, os.Stdout, r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	fmt.Fprintf(os.Stderr, "velo-agent: from the record: %d snapshots, %s to %s\n", rec.Snapshots,
		rec.From.Local().Format(time.DateTime), rec.To.Local().Format(time.DateTime))
	if rec.Damaged > 0 {
		fmt.Fprintf(os.Stderr, "velo-agent: %d places of the record could not be read\n", rec.Damaged)
	}
	if code := diagnosis.ExitCode(r); code != exitOK {
		return codeError{code: code}
	}
	return nil
}

// diffSeparator joins the two times of --diff A B, see joinDiff.
const diffSeparator = ","

func difference(c *cli.Context, w agent.Watch, length time.Duration) error {
	first, second, ok := strings.Cut(c.String("diff"), diffSeparator)
	if !ok {
		return usage(errors.New("--diff takes two times: --diff 13:00 14:00 --for 10m"))
	}
	if c.Bool("markdown") {
		return usage(errors.New("--diff prints text or --json"))
	}
	a, err := recorded(c, w, first, length)
	if err != nil {
		return fmt.Errorf("the first span: %w", err)
	}
	b, err := recorded(c, w, second, length)
	if err != nil {
		return fmt.Errorf("the second span: %w", err)
	}
	d := diagnosis.Compare(a.Measured, b.Measured, diagnosis.Span{From: a.From, To: a.To}, diagnosis.Span{From: b.From, To: b.To})
	if c.Bool("json") {
		return diagnosis.WriteDiffJSON(os.Stdout, d)
	}
	return diagnosis.WriteDiffText(os.Stdout, d)
}

// joinDiff makes one value of the two after --diff: flags here take one.
func joinDiff(args []string) []string {
	for i, a := range args {
		if (a == "--diff" || a == "-diff") && i+2 < len(args) && !strings.HasPrefix(args[i+2], "--") {
			joined := args[i+1] + diffSeparator + args[i+2]
			return append(append(args[:i:i], "--diff="+joined), args[i+3:]...)
		}
	}
	return args
}

func recorded(c *cli.Context, w agent.Watch, at string, length time.Duration) (*agent.Recorded, error) {
	from, err := agent.Moment(at, time.Now())
	if err != nil {
		return nil, usage(err)
	}
	rec, err := fromDaemonOrFolder(c, from, length)
	if err != nil {
		return nil, err
	}
	return rec, rec.Of(w)
}

func fromDaemonOrFolder(c *cli.Context, from time.Time, length time.Duration) (*agent.Recorded, error) {
	if !c.IsSet("record") {
		if d, err := agent.Ask(c.Context, c.String("socket")); err == nil {
			defer d.Close()
			return d.Window(c.Context, from, length)
		}
	}
	return agent.ReadRecord(c.String("record"), from, from.Add(length))
}
