// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/config"
	"github.com/velo-agent/velo-agent/diagnosis"
)

const longestWindow = 24 * time.Hour

func diagnoseCommand() *cli.Command {
	return &cli.Command{
		Name:  "diagnose",
		Usage: "watch for a while and say in a page where the time goes",
		Description: "Watches the listening ports of the serving engines found on the node (vLLM, SGLang,\n" +
			"TGI, llama.cpp, Ollama, Triton, Dynamo), or those you name, and reports the stages of\n" +
			"TTFT and of the gaps, the accept queue, losses, scheduling, and what to do.\n\n" +
			"   velo-agent diagnose --for 30s\n" +
			"   velo-agent diagnose --port 8000 --json > report.json\n" +
			"   velo-agent diagnose --at 14:03 --for 5m\n" +
			"   velo-agent diagnose --diff 13:00 14:00 --for 10m\n\n" +
			"Where a daemon runs (velo-agent run) it is asked, and nothing is attached anew.\n" +
			"Needs CAP_BPF and CAP_PERFMON, and CAP_SYS_ADMIN and CAP_SYS_PTRACE for containers and\n" +
			"other users' processes; without them it reports what it can and exits with 3.\n\n" +
			"Exit codes: 0 all well, 1 a finding of severity warning or worse, 2 wrong usage,\n" +
			"3 missing right, 4 nothing there to watch, 5 internal error.",
		Flags: append(append(watchFlags(),
			&cli.DurationFlag{Name: "for", Value: 10 * time.Second, Usage: "how long to watch"},
			&cli.BoolFlag{Name: "json", Usage: "print the report as JSON (docs/report.schema.json)"},
			&cli.BoolFlag{Name: "markdown", Usage: "print the report as Markdown"},
			&cli.StringFlag{Name: "at", Usage: "report on the past, from this `TIME` on: 14:03, 2006-01-02T14:03, -40m (needs the daemon's record)"},
			&cli.StringFlag{Name: "diff", Usage: "compare two spans of the past: --diff `A B`, each of the length --for"},
			&cli.BoolFlag{Name: "own", Usage: "attach probes of its own, also where a daemon runs"},
			socketFlag(),
			&cli.StringFlag{Name: "record", Value: config.Default().Record.Dir, Usage: "the record's `FOLDER`, where no daemon runs"},
			&cli.StringFlag{Name: "content", Value: "head", Usage: "`head`: look at the first bytes of first writes, in the kernel, to tell headers from tokens; none: never"},
			&cli.StringFlag{Name: "accept", Value: "exact", Usage: "`exact`: see each accept, which slows all system calls where the kernel refuses fexit; cheap: bound it"},
		), commonFlags()...),
		Action: diagnose,
	}
}

func socketFlag() cli.Flag {
	return &cli.StringFlag{Name: "socket", Value: config.Default().Socket.Path, Usage: "the daemon's Unix `SOCKET`"}
}

func watchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntSliceFlag{Name: "port", Aliases: []string{"p"}, Usage: "watch this listening TCP port, in every network namespace (may be repeated)"},
		&cli.IntSliceFlag{Name: "pid", Usage: "watch the ports that this process listens on (may be repeated)"},
		&cli.StringSliceFlag{Name: "cgroup", Usage: "watch the ports of the processes in this cgroup, as in /proc/PID/cgroup (may be repeated)"},
	}
}

func commonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log what is done to stderr"},
		&cli.StringFlag{Name: "color", Value: "auto", Usage: "`auto`, always or never"},
	}
}

func diagnose(c *cli.Context) error {
	o, err := options(c)
	if err != nil {
		return usage(err)
	}
	window := c.Duration("for")
	switch {
	case window <= 0 || window > longestWindow:
		return usage(fmt.Errorf("--for %v: give a time above 0 and up to %v, like 30s", window, longestWindow))
	case c.Bool("json") && c.Bool("markdown"):
		return usage(errors.New("--json and --markdown exclude each other"))
	}
	if c.IsSet("at") || c.IsSet("diff") {
		return past(c, o.Watch, window)
	}
	bar := newBar(os.Stderr)
	report, err := watch(c, o, window, bar.tell)
	bar.clear()
	if report == nil {
		return err
	}
	if werr := write(c, os.Stdout, report); werr != nil {
		return fmt.Errorf("writing the report: %w", werr)
	}
	if err != nil {
		return err
	}
	if code := diagnosis.ExitCode(report); code != exitOK {
		return codeError{code: code}
	}
	return nil
}

// watch asks the daemon of this node, where there is one that watches the same in the
// same way, and otherwise looks itself.
func watch(c *cli.Context, o *agent.Options, window time.Duration, tell agent.Progress) (*diagnosis.Report, error) {
	if d := askedFor(c, o.Watch); d != nil {
		defer d.Close()
		r, err := agent.DiagnoseFrom(c.Context, d, o.Watch, window, tell)
		if err == nil {
			return r, nil
		}
		o.Log.Info("looking without the daemon", "because", err)
	}
	return agent.Diagnose(c.Context, *o, window, tell)
}

// askedFor returns the daemon that watches w, or nil where there is none, or where the
// flags ask for probes of one's own.
func askedFor(c *cli.Context, w agent.Watch) *agent.Asked {
	if c.Bool("own") || c.IsSet("accept") || c.IsSet("content") {
		return nil
	}
	d, err := agent.Ask(c.Context, c.String("socket"))
	if err != nil {
		return nil
	}
	if m, err := d.Measure(c.Context, agent.Reading{}); err != nil || len(w.Of(m)) == 0 {
		d.Close()
		return nil
	}
	return d
}

func write(c *cli.Context, w io.Writer, r *diagnosis.Report) error {
	switch {
	case c.Bool("json"):
		return diagnosis.WriteJSON(w, r)
	case c.Bool("markdown"):
		return diagnosis.WriteMarkdown(w, r)
	}
	return diagnosis.WriteText(w, r, style(c))
}

// options reads the flags that say what is watched and how.
func options(c *cli.Context) (*agent.Options, error) {
	o := &agent.Options{Log: logger(c)}
	if c.NArg() > 0 {
		return nil, fmt.Errorf("%q: this verb takes flags only; did you mean --port %s?", c.Args().First(), c.Args().First())
	}
	for _, p := range c.IntSlice("port") {
		if p < 1 || p > 65535 {
			return nil, fmt.Errorf("--port %d: a TCP port is a number from 1 to 65535", p)
		}
		o.Watch.Ports = append(o.Watch.Ports, uint16(p))
	}
	for _, pid := range c.IntSlice("pid") {
		if pid < 1 {
			return nil, fmt.Errorf("--pid %d: a process has a number from 1 on", pid)
		}
		o.Watch.PIDs = append(o.Watch.PIDs, pid)
	}
	o.Watch.Cgroups = c.StringSlice("cgroup")
	switch c.String("content") {
	case "head":
	case "none":
		o.NoContent = true
	default:
		return nil, fmt.Errorf("--content %s: say head or none", c.String("content"))
	}
	switch c.String("accept") {
	case "exact":
		o.ExactAccept = true
	case "cheap":
	default:
		return nil, fmt.Errorf("--accept %s: say exact or cheap", c.String("accept"))
	}
	switch c.String("color") {
	case "auto", "always", "never":
	default:
		return nil, fmt.Errorf("--color %s: say auto, always or never", c.String("color"))
	}
	return o, nil
}
