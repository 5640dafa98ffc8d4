// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cache is where `make kernels` keeps the kernels, seen from this folder.
const cache = "../../build/kernels"

func TestLines(t *testing.T) {
	got, err := Lines("{\"rung\":{\"signal\":\"left\",\"name\":\"x\"}}\n{\"case\":{\"name\":\"lost\",\"value\":0,\"pass\":true}}\n")
	if err != nil || len(got) != 2 || got[0].Rung.Signal != "left" || !*got[1].Case.Pass {
		t.Errorf("read %+v, %v", got, err)
	}
	if got, err := Lines("{\"rung\":{}}\n{\"ca"); err == nil || len(got) != 1 {
		t.Errorf("half a line gave %+v, %v", got, err)
	}
}

// TestRun boots each cached kernel with the smallest program there is.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("booting a kernel takes seconds; left out by -short")
	}
	if _, err := exec.LookPath(emulator); err != nil {
		t.Skip(ErrNoQemu)
	}
	bin, err := Build(t.Context(), t.TempDir(), "github.com/velo-agent/velo-agent/tests/kernels/testdata/echo")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("carried"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, s := range Series {
		t.Run(s, func(t *testing.T) {
			k, ok := Cached(cache, s)
			if !ok {
				t.Skipf("no kernel %s in the cache; `make kernels` fetches it", s)
			}
			out, code, err := Run(t.Context(), k, Guest{
				Binary: bin, Args: []string{"7", "two words"}, Env: []string{"WORD=env"}, Files: map[string]string{"/data/file": file}, Modules: []string{"tcp_diag", "sch_netem"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := k.Release + "\ntwo words\nenv\ncarried\n"; code != 7 || out.Stdout != want || out.Stderr != "done\n" {
				t.Errorf("ended with %d, printed %q and %q, want 7, %q and %q", code, out.Stdout, out.Stderr, want, "done\n")
			}
		})
	}
}

func TestRunEndsAtItsDeadline(t *testing.T) {
	k, ok := Cached(cache, Series[0])
	if _, err := exec.LookPath(emulator); err != nil || !ok || testing.Short() {
		t.Skip("needs the emulator and a cached kernel, and is left out by -short")
	}
	// The program is no program: init has nothing to start before the deadline.
	_, _, err := Run(t.Context(), k, Guest{Binary: k.Image, Timeout: 100 * time.Millisecond})
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "its console ended") {
		t.Errorf("the error is %v, want ErrTimeout with the console", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	if _, _, err := Run(ctx, k, Guest{Binary: k.Image}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want Canceled", err)
	}
	// And one that cannot be started is init's error, not a timeout.
	if _, _, err := Run(t.Context(), k, Guest{Binary: k.Image}); err == nil || !strings.Contains(err.Error(), "starting the program") {
		t.Errorf("the error is %v, want init's", err)
	}
}
