// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/bpf/ladder"
	"github.com/velo-agent/velo-agent/tests/kernels"
)

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		exit(serve(os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

// TestHere is the guest's whole program on this kernel, with few samples.
func TestHere(t *testing.T) {
	if missing := ladder.MissingCapabilities(); len(missing) > 0 {
		t.Skipf("needs %v", missing)
	}
	if err := ladder.CanLoad(); err != nil {
		t.Skip(err)
	}
	samples := 3
	if testing.Short() {
		samples = 1
	}
	var out bytes.Buffer
	if err := measure(t.Context(), &out, samples); err != nil {
		t.Fatal(err)
	}
	lines, err := kernels.Lines(out.String())
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, l := range lines {
		if x := l.Case; x != nil {
			cases++
			if !*x.Pass {
				t.Errorf("%s is %v %s, wanted %v: %s", x.Name, *x.Value, x.Unit, x.Goal, x.Note)
			}
		}
	}
	if cases == 0 {
		t.Error("nothing was measured")
	}
}
