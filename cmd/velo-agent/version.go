// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/velo-agent/velo-agent/agent"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print it as JSON"}},
		Action: func(c *cli.Context) error {
			if c.Bool("json") {
				return json.NewEncoder(os.Stdout).Encode(map[string]string{
					"version": agent.Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			_, err := fmt.Printf("velo-agent %s (%s, %s/%s)\n", agent.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
