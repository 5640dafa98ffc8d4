// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// The binary answers --generate-bash-completion itself; the shells need only to ask.
const bashCompletion = `_velo_agent() {
  local words="${COMP_WORDS[@]:0:$COMP_CWORD}"
  COMPREPLY=($(compgen -W "$($words --generate-bash-completion 2>/dev/null)" -- "${COMP_WORDS[$COMP_CWORD]}"))
}
complete -F _velo_agent velo-agent
`

const zshCompletion = `#compdef velo-agent
_velo_agent() {
  local -a found
  found=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
  compadd -a found
}
compdef _velo_agent velo-agent
`

func completionCommand() *cli.Command {
	script := func(name, text string) *cli.Command {
		return &cli.Command{
			Name: name, Usage: "for " + name,
			Action: func(*cli.Context) error { _, err := fmt.Print(text); return err },
		}
	}
	return &cli.Command{
		Name:        "completion",
		Usage:       "print a completion script for the shell",
		Description: "In bash: source <(velo-agent completion bash). In zsh: source <(velo-agent completion zsh).",
		Subcommands: []*cli.Command{script("bash", bashCompletion), script("zsh", zshCompletion)},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return noSuchVerb(c, "velo-agent completion")
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}
