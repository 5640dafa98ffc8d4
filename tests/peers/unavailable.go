// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"fmt"
	"os"
)

// ErrUnavailable says that a peer cannot be had on this machine: no Python, no
// package registry, or no wheel for this platform. The error that wraps it
// names the reason.
var ErrUnavailable = errors.New("peer not available on this machine")

// RequireEnv is the environment variable that turns a missing peer from a skip
// into a failure; the continuous integration sets it.
const RequireEnv = "VELO_AGENT_REQUIRE_PEERS"

func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, fmt.Errorf(format, args...))
}

// TB is the part of testing.TB that Skip needs; programs that are no tests use
// this package without linking package testing.
type TB interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
}

// Skip ends the test if err is not nil: as skipped where the peer is not
// available and RequireEnv is unset or empty, else as failed.
func Skip(tb TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrUnavailable) && os.Getenv(RequireEnv) == "":
		tb.Skip(err)
	default:
		tb.Fatal(err)
	}
}
