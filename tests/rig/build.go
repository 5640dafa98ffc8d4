// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// build makes the Rust program if an arm needs it, and returns the arms that can run.
func (r *rig) build(ctx context.Context, all []arm) []arm {
	rust := arm{carrier: velo}
	r.absent = map[string]string{}
	if !slices.Contains(all, rust) {
		r.absent[velo] = "it was not asked for"
		return all
	}
	if err := r.buildVelo(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		r.absent[velo] = err.Error()
		return slices.DeleteFunc(slices.Clone(all), func(a arm) bool { return a == rust })
	}
	return all
}

func (r *rig) buildVelo(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "cargo", "build", "--locked", "--release", "--quiet")
	cmd.Dir = "velo"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the Rust velo node (in tests/rig, with Rust 1.95 or newer): %w\n%s", err, out)
	}
	path, err := filepath.Abs("velo/target/release/velo-rig")
	r.veloPath = path
	return err
}
