// SPDX-License-Identifier: Apache-2.0

// Command generate writes the dashboards and the rules into dashboards/. Run it in
// the root of the repository: go run ./dashboards/generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/velo-agent/velo-agent/dashboards"
)

func main() {
	if err := write("dashboards"); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	files, err := dashboards.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return fmt.Errorf("writing %s (run it in the root of the repository): %w", name, err)
		}
	}
	return nil
}
