// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/tests/results"
	"github.com/velo-agent/velo-agent/tests/rig/side"
)

func TestMain(m *testing.M) {
	if role := side.Role(); role != "" {
		side.Serve(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// Every carrier moves 50 streams of 20 records, and the consumer checks each of them.
func TestCarriers(t *testing.T) {
	r := &rig{reps: 1}
	for _, a := range arms {
		t.Run(a.String(), func(t *testing.T) {
			if a.carrier == velo {
				buildForTest(t, r)
			}
			for _, name := range []string{"50x20-back-to-back-peer", "50x20-back-to-back-stream", "50x20-paced-peer", "50x20-paced-stream"} {
				c, err := parseCase(name)
				if err != nil {
					t.Fatal(err)
				}
				if !a.takesPart(c) {
					continue
				}
				f, err := r.repetition(t.Context(), a, c)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if f[rate] <= 0 || f[cpu] <= 0 {
					t.Errorf("%s: %g records a second for %g µs each", name, f[rate], f[cpu])
				}
				if _, ok := f[p99]; ok != c.paced {
					t.Errorf("%s: latency measured: %v", name, ok)
				}
			}
		})
	}
}

// buildForTest builds the Rust program, or skips where that would take minutes or cannot be.
func buildForTest(t *testing.T, r *rig) {
	if _, err := exec.LookPath("cargo"); err != nil {
		t.Skip("no cargo, which builds the Rust velo node")
	}
	if _, err := os.Stat("velo/target/release/velo-rig"); err != nil && testing.Short() {
		t.Skip("the Rust velo node was not built yet, which takes minutes: make bench-plane does it")
	}
	if err := r.buildVelo(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestParseCase(t *testing.T) {
	for _, c := range []struct {
		name string
		want testCase
		bad  bool
	}{
		{"2048x64-paced-peer", testCase{2048, 64, true, false}, false},
		{"8192x918-back-to-back-stream", testCase{8192, 918, false, true}, false},
		{"2x64-paced-peer", testCase{}, true},
		{"2048x1-paced-peer", testCase{}, true},
		{"2048x64-paced", testCase{}, true},
	} {
		got, err := parseCase(c.name)
		if (err != nil) != c.bad || !c.bad && (got != c.want || got.String() != c.name) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

func TestChooseArms(t *testing.T) {
	for _, c := range []struct{ names, want string }{
		{"velo,plane", "velo plane/push plane/recv"},
		{"plane/recv", "plane/recv"},
		{"nothing", ""},
	} {
		chosen, err := chooseArms(c.names)
		var got []string
		for _, a := range chosen {
			got = append(got, a.String())
		}
		if s := strings.Join(got, " "); s != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v", c.names, s, err)
		}
	}
}

// A repetition that fails says what was wrong, and its arm shows no figures.
func TestFault(t *testing.T) {
	c := testCase{streams: 4, records: 2}
	bad := arm{carrier: "pigeon"}
	m, err := (&rig{reps: 2}).measure(t.Context(), c, []arm{bad})
	if err != nil {
		t.Fatal(err)
	}
	if m.faults[bad] == nil || len(m.reps[bad]) > 0 || !strings.Contains(m.faults[bad].Error(), "pigeon") {
		t.Errorf("fault %v, %d repetitions", m.faults[bad], len(m.reps[bad]))
	}
	out := results.New("trial")
	(&rig{out: out, slack: 1}).judge(m)
	if len(out.Cases) != 1 || *out.Cases[0].Pass {
		t.Errorf("verdicts %+v", out.Cases)
	}
	var printed bytes.Buffer
	m.print(&printed, columns, m.remark)
	if !strings.Contains(printed.String(), "FAULT") {
		t.Errorf("the table hides it:\n%s", printed.String())
	}
}

func TestJudge(t *testing.T) {
	rust := arm{carrier: velo}
	m := measured{&table{arms: []arm{rust, recv}, reps: map[arm][]figures{
		rust: {{cpu: 10}, {cpu: 20}, {cpu: 30}},
		recv: {{cpu: 4}, {cpu: 9}, {cpu: 18}},
	}}, testCase{streams: 8, records: 64}}
	s, ok := m.ratio(recv, rust, cpu)
	if want := (spread{0.45, 0.4, 0.6}); !ok || s != want {
		t.Errorf("ratio %v, want %v", s, want)
	}
	if _, ok := m.ratio(recv, rust, p99); ok {
		t.Error("a ratio of what was not measured")
	}
	out := results.New("trial")
	(&rig{out: out, slack: 1}).judge(m)
	last := out.Cases[len(out.Cases)-1]
	if !*last.Pass || *last.Value != 0.45 || last.Goal != 0.5 {
		t.Errorf("verdict %+v", last)
	}
	(&rig{out: out, slack: 0.5}).judge(m)
	if last = out.Cases[len(out.Cases)-1]; *last.Pass || last.Goal != 0.25 {
		t.Errorf("verdict with other goals %+v", last)
	}
}

// Streams come and go, over TCP and on one node, and anchors rest.
func TestAnchors(t *testing.T) {
	r := &rig{reps: 1, slack: 1, out: results.New("trial"), absent: map[string]string{}}
	for _, a := range []arm{{carrier: velo}, push, recv} {
		t.Run(a.String(), func(t *testing.T) {
			if a.carrier == velo {
				buildForTest(t, r)
			}
			arms := []arm{a}
			for _, run := range []func() error{
				func() error { return r.cycles(t.Context(), arms, 1, 1, 500) },
				func() error { return r.cycles(t.Context(), arms, 2, 4, 500) },
				func() error { return r.idle(t.Context(), arms, 100) },
				func() error { return r.localCycles(t.Context(), arms, 2, 500) },
				func() error { return r.atRest(t.Context(), arms, "unattached", 1000) },
				func() error { return r.atRest(t.Context(), arms, "prebound", 1000) },
			} {
				if err := run(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for _, c := range r.out.Cases {
		if strings.HasSuffix(c.Name, "refused records") && !*c.Pass {
			t.Errorf("%s: %s", c.Name, c.Note)
		}
	}
	if len(r.figures) == 0 {
		t.Error("nothing was measured")
	}
}
