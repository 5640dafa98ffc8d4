// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/config"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "run as a daemon: metrics, reports, and the record of the last day",
		Description: "Finds the serving engines of the node, watches their ports, serves metrics and reports\n" +
			"on " + config.Default().Listen + " and over a Unix socket, and writes a record. No configuration is needed; see\n" +
			"`velo-agent config show` for what can be set.\n\n" +
			"   velo-agent run\n" +
			"   velo-agent run --config /etc/velo-agent/velo-agent.yaml\n\n" +
			"Started as root it keeps no right for itself: a helper holds the few capabilities that the\n" +
			"probes need, listens nowhere, and answers typed requests of the daemon alone.\n\n" +
			"SIGHUP reloads the configuration. SIGTERM writes the last window, detaches the probes and lets\n" +
			"requests under way end; a second one ends at once.\n\n" +
			"Exit codes: 0 stopped, 2 wrong usage or configuration, 5 a daemon runs already, or an internal error.",
		Flags:  []cli.Flag{&cli.StringFlag{Name: "config", Aliases: []string{"c"}, Usage: "the configuration `FILE` (default " + config.DefaultPath + ", if it is there)"}},
		Action: runDaemon,
	}
}

func runDaemon(c *cli.Context) error {
	if c.NArg() > 0 {
		return usage(fmt.Errorf("%q: this verb takes flags only", c.Args().First()))
	}
	load := func() (*config.Config, error) {
		if path := c.String("config"); path != "" {
			return config.Load(path)
		}
		return config.Load(config.DefaultPath)
	}
	conf, err := load()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(agent.LevelOf(conf))
	log := daemonLogger(level, conf.Log.Format)
	second, err := agent.Inherited()
	if err != nil {
		return err
	}
	if second == nil {
		return agent.Launch(conf, log)
	}
	ctx, stop := untilTerminated(log)
	defer stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, unix.SIGHUP)
	defer signal.Stop(reload)
	return second.Serve(ctx, &agent.Parts{Config: conf, Load: load, Log: log, Level: level}, reload)
}

func daemonLogger(level *slog.LevelVar, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}

// untilTerminated returns a context that the first SIGTERM or SIGINT ends; the second
// ends the process.
func untilTerminated(log *slog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		log.Info("stopping; a second signal ends at once")
		cancel()
		if _, ok := <-signals; ok {
			os.Exit(exitInternal)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

// helperCommand is what `run` starts; nobody else has a use for it.
func helperCommand() *cli.Command {
	return &cli.Command{
		Name: agent.HelperVerb, Hidden: true, Usage: "hold the rights for a daemon (started by `velo-agent run`)",
		Flags: []cli.Flag{&cli.StringFlag{Name: "log-level", Value: "info"}, &cli.StringFlag{Name: "log-format", Value: "text"}},
		Action: func(c *cli.Context) error {
			level := new(slog.LevelVar)
			if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
				return usage(err)
			}
			// The daemon says when it is over; signals of its terminal are not for this.
			signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
			err := agent.RunHelper(context.Background(), daemonLogger(level, c.String("log-format")).With("component", "helper"))
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}
}
