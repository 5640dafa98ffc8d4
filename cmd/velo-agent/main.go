// SPDX-License-Identifier: Apache-2.0

// Command velo-agent says where the time of LLM token streams goes on a serving
// node.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/config"
)

// The exit codes (docs/exit-codes.md).
const (
	exitOK       = 0
	exitFindings = 1
	exitUsage    = 2
	exitMissing  = 3
	exitNotThere = 4
	exitInternal = 5
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args))
}

// run is the whole program but for the process's end.
func run(ctx context.Context, args []string) int {
	app := &cli.App{
		Name:    "velo-agent",
		Usage:   "where did this token's time go?",
		Version: agent.Version,
		Description: "velo-agent watches the sockets, accept queues and scheduler of a serving node with\n" +
			"eBPF, and splits the time to first token and the gaps between tokens into stages\n" +
			"that add up. Nothing in the engine is changed or restarted.\n\n" +
			"Start with: velo-agent diagnose",
		EnableBashCompletion:   true,
		UseShortOptionHandling: true,
		HideVersion:            true,
		Suggest:                true,
		Commands:               []*cli.Command{diagnoseCommand(), runCommand(), topCommand(), streamCommand(), configCommand(), probesCommand(), versionCommand(), completionCommand(), helperCommand()},
		ExitErrHandler:         func(*cli.Context, error) {},
		OnUsageError:           wrongFlag,
		CommandNotFound:        nil,
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return noSuchVerb(c, "velo-agent")
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, c := range app.Commands {
		c.OnUsageError = wrongFlag
		for _, sub := range c.Subcommands {
			sub.OnUsageError = wrongFlag
		}
	}
	err := app.RunContext(ctx, joinDiff(args))
	if err == nil {
		return exitOK
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "velo-agent: "+oneLine(text))
	}
	return exitCode(err)
}

// wrongFlag names the flag that was meant, where one is not known.
func wrongFlag(c *cli.Context, err error, _ bool) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return usage(err)
	}
	if near := cli.SuggestFlag(c.Command.Flags, name, false); near != "" {
		return usage(fmt.Errorf("no such flag: --%s; did you mean %s?", strings.TrimLeft(name, "-"), near))
	}
	return usage(fmt.Errorf("no such flag: --%s; `velo-agent --help` lists them", strings.TrimLeft(name, "-")))
}

func noSuchVerb(c *cli.Context, of string) error {
	// cli's suggestion is a whole sentence.
	near := strings.Replace(cli.SuggestCommand(c.Command.Subcommands, c.Args().First()), "Did", "did", 1)
	return usage(fmt.Errorf("no such verb: %q; %s `%s --help` lists them", c.Args().First(), near, of))
}

// usageError is a wrong flag or argument.
type usageError struct{ error }

func usage(err error) error { return usageError{err} }

func (e usageError) Unwrap() error { return e.error }

// codeError ends the program with a code and, where there is one, a sentence.
type codeError struct {
	code int
	error
}

func (e codeError) Error() string {
	if e.error == nil {
		return ""
	}
	return e.error.Error()
}

func (e codeError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var coded codeError
	var wrong usageError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &wrong), errors.Is(err, config.ErrConfig):
		return exitUsage
	case errors.Is(err, agent.ErrNotThere):
		return exitNotThere
	case errors.Is(err, agent.ErrNoSignal):
		return exitMissing
	}
	return exitInternal
}

// oneLine joins the lines of joined errors: what a script reads is one sentence.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }), "; ")
}
