// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/top"
)

// topSource opens what top reads its figures from, and what is to be closed
// afterwards.
var topSource = daemonOrOwn

func topCommand() *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "show the ports, their stages and the worst exchanges, live",
		Description: "Watches as diagnose does, or asks the daemon where one runs, and draws each window anew: the ports with their quantiles and\n" +
			"main stage, the waterfall of one port, the slowest exchanges. 80 columns are enough.\n\n" +
			"   velo-agent top\n" +
			"   velo-agent top --port 8000 --interval 5s\n" +
			"   velo-agent top --once --json > report.json\n\n" +
			"Keys:\n\n" + top.KeysHelp() + "\n" +
			"Exit codes: 0 all well, whatever was found, 2 wrong usage, or no terminal and no --once,\n" +
			"4 nothing there to watch, 5 internal error.",
		Flags: append(append(watchFlags(),
			&cli.DurationFlag{Name: "interval", Aliases: []string{"i"}, Value: 2 * time.Second, Usage: "length of a window, 500ms to 1m"},
			&cli.BoolFlag{Name: "once", Usage: "print one window as plain text, and end"},
			&cli.BoolFlag{Name: "json", Usage: "print the report of one window as JSON (docs/report.schema.json), and end"},
			&cli.StringFlag{Name: "content", Value: "head", Usage: "`head`: look at the first bytes of first writes, in the kernel, to tell headers from tokens; none: never"},
			&cli.BoolFlag{Name: "own", Usage: "attach probes of its own, also where a daemon runs"},
			socketFlag(),
			// A view may stay open for hours, so the dear rung is asked for by name.
			&cli.StringFlag{Name: "accept", Value: "cheap", Usage: "`cheap`: bound the wait for accept; exact: see each accept, which slows all system calls where the kernel refuses fexit"},
		), commonFlags()...),
		Action: showTop,
	}
}

func showTop(c *cli.Context) error {
	if _, err := options(c); err != nil {
		return usage(err)
	}
	once := c.Bool("once") || c.Bool("json")
	if err := drawable(c, once); err != nil {
		return usage(err)
	}
	s := style(c)
	o := top.Options{Interval: c.Duration("interval"), Color: s.Color, ASCII: s.ASCII, Width: s.Width}
	source, closer, err := topSource(c)
	if err != nil {
		return err
	}
	if once {
		err = printTop(c, source, o)
	} else {
		err = top.Run(c.Context, source, o)
	}
	if cerr := closer.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("ending the watch: %w", cerr))
	}
	return err
}

// drawable says what stands against drawing, before anything is attached.
func drawable(c *cli.Context, once bool) error {
	switch every := c.Duration("interval"); {
	case every < top.Shortest || every > top.Longest:
		return fmt.Errorf("--interval %v: give a time from %v to %v, like 2s", every, top.Shortest, top.Longest)
	case once:
		return nil
	case !isTerminal(os.Stdout):
		return errors.New("standard output is not a terminal: `velo-agent top --once` prints one window as plain text, --json one report")
	case os.Getenv("TERM") == "dumb":
		return errors.New("TERM is dumb, a terminal that cannot be drawn on: `velo-agent top --once` prints one window as plain text")
	case c.Bool("verbose") && isTerminal(os.Stderr):
		return errors.New("--verbose would write over the view: send it elsewhere, as with `velo-agent top -v 2>top.log`")
	}
	return nil
}

func printTop(c *cli.Context, s top.Source, o top.Options) error {
	report, err := top.Once(c.Context, s, o)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return diagnosis.WriteJSON(os.Stdout, report)
	}
	return top.WriteText(os.Stdout, report, o)
}

// daemonOrOwn asks the daemon of this node where there is one that watches what is
// asked for in the way that is asked for, and otherwise watches in this process.
func daemonOrOwn(c *cli.Context) (top.Source, io.Closer, error) {
	o, err := options(c)
	if err != nil {
		return nil, nil, usage(err)
	}
	if d := askedFor(c, o.Watch); d != nil {
		return narrowed{d, o.Watch}, d, nil
	}
	s, err := agent.Open(c.Context, *o)
	if err != nil {
		return nil, nil, err
	}
	return narrowed{agent.InProcess(s), agent.Watch{}}, s, nil
}

// narrowed shows the watched ports of a source, and of streams those of each window.
type narrowed struct {
	agent.Source
	watch agent.Watch
}

func (n narrowed) Measure(ctx context.Context) (*diagnosis.Measured, error) {
	m, err := n.Source.Measure(ctx, agent.Reading{Forget: true})
	if err == nil {
		m.Ports = n.watch.Of(m)
	}
	return m, err
}
