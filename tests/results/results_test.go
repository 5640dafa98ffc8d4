// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

func TestFinish(t *testing.T) {
	for _, c := range []struct {
		name string
		fill func(*Run)
		want int
	}{
		{"all passed", func(r *Run) { r.Add("a", 2, "ms", 3, Lower, 5, "") }, 0},
		{"a goal missed", func(r *Run) { r.Add("a", 2, "ms", 3, Higher, 5, "") }, 1},
		{"skipped alone", func(r *Run) { r.Skip("a", "ms", 3, Higher, "no GPU") }, 0},
		{"not measured", func(r *Run) { r.Fail("no right") }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, dir := New("trial"), t.TempDir()
			c.fill(r)
			var out bytes.Buffer
			if got := r.Finish(&out, dir); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
			b, err := os.ReadFile(filepath.Join(dir, "trial.json"))
			if err != nil {
				t.Fatal(err)
			}
			var back map[string]any
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"target", "commit", "kernel", "started", "seconds", "cases"} {
				if _, ok := back[key]; !ok {
					t.Errorf("the JSON lacks %q", key)
				}
			}
		})
	}
}

func TestAttempt(t *testing.T) { synctest.Test(t, attempt) }

func attempt(t *testing.T) {
	r, n := New("trial"), 0
	r.Attempt(3, func(r *Run) {
		n++
		r.Add("a", float64(n), "", 2, Higher, 1, "seen")
	})
	if n != 2 || len(r.Cases) != 1 || !*r.Cases[0].Pass || !strings.HasPrefix(r.Cases[0].Note, "attempt 2") {
		t.Errorf("after %d attempts: %+v", n, r.Cases)
	}
	r, n = New("trial"), 0
	r.Attempt(2, func(r *Run) {
		n++
		r.Fail("no server")
	})
	if n != 2 || r.failed != "no server" {
		t.Errorf("after %d attempts: failed %q", n, r.failed)
	}
}
