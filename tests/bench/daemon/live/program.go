// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds velo-agent as it is released, into a folder that the daemon's user must
// be let into, and returns the program's path.
func Build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "velo-agent")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "github.com/velo-agent/velo-agent/cmd/velo-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building velo-agent: %w: %s", err, out)
	}
	return path, nil
}

// Lacking says why no daemon with probes can run here, or is empty.
func Lacking(program string) string {
	if os.Geteuid() != 0 {
		return "needs root: the daemon gives up rights, and the probes need them"
	}
	out, err := exec.Command(program, "probes", "--json").CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == 3 {
		return fmt.Sprintf("needs the probes: %.400s", out)
	}
	return ""
}
