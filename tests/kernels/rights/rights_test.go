// SPDX-License-Identifier: Apache-2.0

//go:build linux

package rights

import (
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/tests/kernels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRights runs the real command line in each case, for a short window.
func TestRights(t *testing.T) {
	if err := Possible(); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "velo-rights-") // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	agent, err := kernels.Build(t.Context(), dir, "github.com/velo-agent/velo-agent/cmd/velo-agent")
	if err != nil {
		t.Fatal(err)
	}
	v, err := newVictims(t.Context())
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	cases := All
	if testing.Short() {
		cases = All[:4]
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := v.try(t.Context(), agent, c, 300*time.Millisecond)
			if errors.Is(err, ErrCannot) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCheck: an answer that is not as it should be is told.
func TestCheck(t *testing.T) {
	var a answer
	for name, o := range map[string]output{
		"another exit code": {stdout: "{}", code: 5},
		"a crash":           {stdout: "{}", stderr: "panic: x\n\ngoroutine 1 [running]:", code: 0},
		"no JSON":           {stdout: "report", code: 0},
		"a silent refusal":  {stdout: "{}", code: 3},
	} {
		if o.check("diagnose", []int{0, 3}, &a) == nil {
			t.Errorf("%s is not told", name)
		}
	}
	good := output{stdout: "{}", stderr: "velo-agent: missing right", code: 3}
	if err := good.check("diagnose", missing, &a); err != nil {
		t.Error(err)
	}
	c := Case{Says: []string{"why"}, Never: []string{"locked down"}}
	if got := c.reasons("diagnose", output{stdout: "locked down"}, []reason{{Missing: true}}); len(got) != 2 {
		t.Errorf("told %v, want both", got)
	}
}
