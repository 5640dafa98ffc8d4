// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/velo-agent/velo-agent/config"
)

func configCommand() *cli.Command {
	return &cli.Command{
		Name:  "config",
		Usage: "check and show the daemon's configuration",
		Description: "The daemon needs no configuration. What is set is read from " + config.DefaultPath + "\n" +
			"and then from the files " + config.DefaultPath + ".d/*.yaml; later ones win.\n\n" +
			"   velo-agent config show > velo-agent.yaml\n" +
			"   velo-agent config check velo-agent.yaml\n\n" +
			"Every key is described in docs/configuration.md.",
		Subcommands: []*cli.Command{
			{
				Name: "check", Usage: "say whether a file and its drop-ins are right", ArgsUsage: "[FILE]",
				Description: "Reads FILE (" + config.DefaultPath + " where none is given) and FILE.d/*.yaml, and\n" +
					"prints each problem as file:line:column: key: what is wrong: what to do.\n\n" +
					"   velo-agent config check ./velo-agent.yaml\n\n" +
					"Exit codes: 0 the configuration is right, 2 it is not, or cannot be read.",
				Action: checkConfig,
			},
			{
				Name: "show", Usage: "print what holds: every key, explained, changed ones marked", ArgsUsage: "[FILE]",
				Description: "Reads as config check does. What is printed is itself a configuration.\n\n" +
					"   velo-agent config show | grep -A1 CHANGED\n" +
					"   velo-agent config show --json ./velo-agent.yaml\n\n" +
					"Exit codes: 0 printed, 2 the configuration is wrong, or cannot be read.",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print it as JSON, without explanations"}},
				Action: showConfig,
			},
			{
				Name: "schema", Usage: "print the JSON schema of the configuration (draft 2020-12)",
				Description: "For editors, and for checks where no velo-agent is.\n\n" +
					"   velo-agent config schema > velo-agent.schema.json\n\n" +
					"Exit codes: 0 printed, 2 wrong usage.",
				Action: func(c *cli.Context) error {
					if c.NArg() > 0 {
						return usage(fmt.Errorf("%q: this verb takes no argument", c.Args().First()))
					}
					return printed(config.Schema())
				},
			},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return noSuchVerb(c, "velo-agent config")
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}

func checkConfig(c *cli.Context) error {
	file, err := configFile(c)
	if err != nil {
		return err
	}
	_, err = config.Load(file)
	var wrong *config.Error
	if errors.As(err, &wrong) {
		if werr := printed([]byte(wrong.Error() + "\n")); werr != nil {
			return werr
		}
		problems := "1 problem, told"
		if n := wrong.Count(); n > 1 {
			problems = fmt.Sprintf("%d problems, told", n)
		}
		return codeError{exitUsage, fmt.Errorf("%s: %s on standard output with what to do", file, problems)}
	}
	if err != nil {
		return err
	}
	files, err := config.Files(file)
	if err != nil {
		return codeError{exitUsage, err}
	}
	state, dropIns := "ok", len(files)
	if dropIns > 0 && files[0] == file {
		dropIns--
	} else {
		state = "not there, so the defaults hold"
	}
	plural := "s"
	if dropIns == 1 {
		plural = ""
	}
	return printed(fmt.Appendf(nil, "%s: %s, %d drop-in%s\n", file, state, dropIns, plural))
}

func showConfig(c *cli.Context) error {
	file, err := configFile(c)
	if err != nil {
		return err
	}
	holds, err := config.Load(file)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printed(config.ShowJSON(holds))
	}
	return printed(config.Show(holds))
}

// configFile returns the file that is named, or the one that is read by default.
// Flags behind it, which cli leaves among the arguments, are set.
func configFile(c *cli.Context) (string, error) {
	file := ""
	for _, a := range c.Args().Slice() {
		switch {
		case a == "--json" && c.Command.Name == "show":
			if err := c.Set("json", "true"); err != nil {
				return "", fmt.Errorf("setting --json: %w", err)
			}
		case a == "":
			return "", usage(errors.New("the file's name is empty"))
		case strings.HasPrefix(a, "-"):
			return "", usage(fmt.Errorf("no such flag: %s; `velo-agent config %s --help` lists them", a, c.Command.Name))
		case file != "":
			return "", usage(fmt.Errorf("%q: give one file; drop-ins are found beside it", a))
		default:
			file = a
		}
	}
	if file == "" {
		file = config.DefaultPath
	}
	return file, nil
}

func printed(b []byte) error {
	if _, err := os.Stdout.Write(b); err != nil {
		return fmt.Errorf("writing to standard output: %w", err)
	}
	return nil
}
