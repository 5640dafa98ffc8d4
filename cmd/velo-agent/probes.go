// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/diagnosis"
)

func probesCommand() *cli.Command {
	return &cli.Command{
		Name:  "probes",
		Usage: "show how each signal is obtained on this node, why not better, and its cost",
		Description: "Tries every rung of every signal by loading and attaching it, sends a few hundred\n" +
			"exchanges of its own over loopback, and shows what held. Nothing stays attached.\n\n" +
			"Exit codes: 0 every stage can be told, 3 a right or a hook is missing, 5 internal error.",
		Flags: append([]cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print it as JSON"}}, commonFlags()...),
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return usage(fmt.Errorf("%q: this verb takes flags only", c.Args().First()))
			}
			sheet, err := agent.Probes(c.Context, logger(c))
			if sheet == nil {
				return err
			}
			if c.Bool("json") {
				e := json.NewEncoder(os.Stdout)
				e.SetIndent("", "  ")
				if werr := e.Encode(sheet); werr != nil {
					return fmt.Errorf("writing the sheet: %w", werr)
				}
				return err
			}
			var text bytes.Buffer
			writeSheet(&text, sheet)
			if _, werr := os.Stdout.Write(text.Bytes()); werr != nil {
				return fmt.Errorf("writing the sheet: %w", werr)
			}
			return err
		},
	}
}

func writeSheet(w io.Writer, s *agent.ProbeSheet) {
	fmt.Fprintf(w, "probes on %s, kernel %s\n\n", s.Node.Hostname, s.Node.Kernel)
	for _, c := range s.Signals {
		rung := c.Rung
		if c.Missing {
			rung = "MISSING"
		}
		fmt.Fprintf(w, "%-18s %s\n", c.Signal, rung)
		for _, r := range c.BetterRefused {
			fmt.Fprintf(w, "%-18s   not %s: %s\n", "", r.Rung, firstLine(r.Why))
		}
		if c.Note != "" {
			fmt.Fprintf(w, "%-18s   %s\n", "", firstLine(c.Note))
		}
	}
	if len(s.Programs) > 0 {
		fmt.Fprintf(w, "\n%-24s %10s %12s\n", "program", "runs", "ns per run")
		for _, p := range s.Programs {
			fmt.Fprintf(w, "%-24s %10d %12s\n", p.Name, p.Runs, perRun(p))
		}
		fmt.Fprintf(w, "\nkernel maps %.1f MiB\n", float64(s.MapBytes)/(1<<20))
	}
	for _, place := range sortedKeys(s.Lost) {
		if s.Lost[place] > 0 {
			fmt.Fprintf(w, "lost: %s %d\n", place, s.Lost[place])
		}
	}
}

func perRun(p diagnosis.ProgramCost) string {
	if p.Runs == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", p.NSPerRun)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func sortedKeys(m map[string]uint64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
