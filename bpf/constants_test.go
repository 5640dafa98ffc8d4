// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/velo-agent/velo-agent/attribution"
)

// header is what one C header defines: plain #define numbers, and enums.
type header struct {
	numbers map[string]int
	enums   map[string][]constant
}

type constant struct {
	name  string
	value int
}

var (
	comment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	define  = regexp.MustCompile(`(?m)^#define (\w+)\s+(\d+)\s*$`)
	enum    = regexp.MustCompile(`(?s)enum (\w+) \{(.*?)\}`)
)

// The enums of the headers leave no trace in an object's BTF, so the headers
// themselves are read.
func readHeader(t *testing.T, name string) header {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("include", name))
	if err != nil {
		t.Fatal(err)
	}
	text := comment.ReplaceAllString(string(b), "")
	// What is left behind a number is white space.
	text = regexp.MustCompile(`(?m)[ \t]+$`).ReplaceAllString(text, "")
	h := header{numbers: map[string]int{}, enums: map[string][]constant{}}
	for _, m := range define.FindAllStringSubmatch(text, -1) {
		h.numbers[m[1]], _ = strconv.Atoi(m[2])
	}
	for _, m := range enum.FindAllStringSubmatch(text, -1) {
		next := 0
		for _, item := range strings.Split(m[2], ",") {
			name, value, given := strings.Cut(strings.TrimSpace(item), "=")
			if name == "" {
				continue
			}
			if given {
				if next, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
					t.Fatal(err)
				}
			}
			h.enums[m[1]] = append(h.enums[m[1]], constant{strings.TrimSpace(name), next})
			next++
		}
	}
	return h
}

func (h header) check(t *testing.T, enum string, want ...constant) {
	t.Helper()
	if got := h.enums[enum]; !slices.Equal(got, want) {
		t.Errorf("enum %s is %v in C and %v in Go", enum, got, want)
	}
}

func TestStagesAgree(t *testing.T) {
	var want []constant
	for s := range attribution.NumStages {
		want = append(want, constant{"STAGE_" + strings.ToUpper(s.String()), int(s)})
	}
	readHeader(t, "stage.h").check(t, "stage", append(want, constant{"STAGES", int(attribution.NumStages)})...)
	if n := len(mapsRecord{}.Stages); n != int(attribution.NumStages) {
		t.Errorf("a record holds %d stages, want %d", n, attribution.NumStages)
	}
}

func TestStepsAgree(t *testing.T) {
	h := readHeader(t, "conn.h")
	h.check(t, "step_kind",
		constant{"STEP_ARRIVED", int(attribution.Arrived)}, constant{"STEP_RAN", int(attribution.Ran)},
		constant{"STEP_HANDED", int(attribution.Handed)}, constant{"STEP_READ", int(attribution.Read)},
		constant{"STEP_SEND", int(attribution.Send)}, constant{"STEP_SENT", int(attribution.Sent)},
		constant{"STEP_LEFT", int(attribution.Left)}, constant{"STEP_ESTABLISHED", int(attribution.Established)},
		constant{"STEP_ACCEPTED", int(attribution.Accepted)}, constant{"STEP_CUT", int(attribution.Cut)})
	h.check(t, "write_class",
		constant{"CLASS_CONTENT", int(attribution.Content)}, constant{"CLASS_HEADERS", int(attribution.Headers)},
		constant{"CLASS_INTERIM", int(attribution.Interim)}, constant{"CLASS_ROLE", int(attribution.Role)},
		constant{"CLASS_END", int(attribution.End)})
	if h.numbers["STEPS"] != recorderSteps || len(mapsRecord{}.Steps) != recorderSteps || len(mapsConn{}.Steps) != recorderSteps {
		t.Errorf("the recorder holds %d steps in C and %d in Go", h.numbers["STEPS"], recorderSteps)
	}
	for _, c := range h.enums["conn_flag"] {
		if c.name == "CONN_ACCEPT_INTERVAL" && c.value != flagInterval {
			t.Errorf("CONN_ACCEPT_INTERVAL is %d in C and %d in Go", c.value, flagInterval)
		}
	}
	readHeader(t, "record.h").check(t, "record_kind",
		constant{"RECORD_TTFT", int(attribution.TraceTTFT)}, constant{"RECORD_GAP", int(attribution.TraceGap)})
}

// TestWritesAgree: attribution tells as many waiting writes apart as the kernel.
func TestWritesAgree(t *testing.T) {
	n := readHeader(t, "conn.h").numbers["WRITES"]
	if n == 0 || len(mapsConn{}.Writes) != n {
		t.Fatalf("%d writes in C and %d in Go", n, len(mapsConn{}.Writes))
	}
	steps := []attribution.Step{{Kind: attribution.Arrived, Time: 1, Pos: 9}, {Kind: attribution.Read, Time: 2, Pos: 9}}
	for i := range n + 2 {
		steps = append(steps, attribution.Step{Kind: attribution.Send, Time: 3, Pos: uint64(i + 1)})
	}
	steps = append(steps, attribution.Step{Kind: attribution.Sent, Time: 4, Pos: uint64(n + 2)})
	out, err := attribution.Replay(steps, attribution.Options{})
	if err != nil || len(out) != n {
		t.Errorf("%d waiting writes leave as %d outcomes (%v), want %d", n+2, len(out), err, n)
	}
}

func TestHistogramsAgree(t *testing.T) {
	h := readHeader(t, "histogram.h").numbers
	buckets := (h["HIST_MAX_SHIFT"]-h["HIST_MIN_SHIFT"])<<h["HIST_SUB_BITS"] + 2
	if buckets != attribution.Buckets || len(mapsHist{}.Counts) != attribution.Buckets {
		t.Errorf("%d buckets in C, %d in Go", buckets, attribution.Buckets)
	}
	if low, high := attribution.BucketBounds(1); low != 1<<h["HIST_MIN_SHIFT"] || high-low != low>>h["HIST_SUB_BITS"] {
		t.Errorf("the first whole bucket is [%d, %d) in Go", low, high)
	}
	if low, _ := attribution.BucketBounds(attribution.Buckets - 1); low != 1<<h["HIST_MAX_SHIFT"] {
		t.Errorf("the last bucket begins at %d in Go", low)
	}
}

func TestLimitsAgree(t *testing.T) {
	if n := readHeader(t, "port.h").numbers["MAX_PORTS"]; n != MaxPorts {
		t.Errorf("MAX_PORTS is %d, MaxPorts %d", n, MaxPorts)
	}
	if n := readHeader(t, "port.h").numbers["MAX_WATCHED"]; n != MaxWatched {
		t.Errorf("MAX_WATCHED is %d, MaxWatched %d", n, MaxWatched)
	}
	if n := readHeader(t, "config.h").numbers["LISTENINGS"]; n != listenings {
		t.Errorf("LISTENINGS is %d, listenings %d", n, listenings)
	}
	if n := readHeader(t, "accept.h").numbers["MAX_ACCEPTING"]; n != MaxAccepting {
		t.Errorf("MAX_ACCEPTING is %d, MaxAccepting %d", n, MaxAccepting)
	}
	if n := readHeader(t, "wake.h").numbers["MAX_ROLES"]; n != MaxRoles {
		t.Errorf("MAX_ROLES is %d, MaxRoles %d", n, MaxRoles)
	}
	if n := readHeader(t, "kernel.h").numbers["AF_INET6"]; n != familyIPv6 {
		t.Errorf("AF_INET6 is %d, familyIPv6 %d", n, familyIPv6)
	}
	// The kernel's head of an element is some dozens of bytes, not hundreds.
	if n := uint64(unsafe.Sizeof(mapsConn{})); connBytes < n || connBytes > 2*n {
		t.Errorf("connBytes is %d for a struct conn of %d", connBytes, n)
	}
}

func TestFlagsAgree(t *testing.T) {
	var want []constant
	for name, f := range map[string]Flag{
		"SEND_START": FlagSendStart, "ACCEPT_EXIT": FlagAcceptExit, "ACCEPT_RETURN": FlagAcceptReturn,
		"SCHED": FlagSched, "CONTENT": FlagContent,
	} {
		want = append(want, constant{"CONFIG_" + name, int(f)})
	}
	slices.SortFunc(want, func(a, b constant) int { return a.value - b.value })
	readHeader(t, "config.h").check(t, "config_flag", want...)
}

func TestLostReasonsAgree(t *testing.T) {
	reasons := readHeader(t, "lost.h").enums["lost_reason"]
	if n := len(reasons) - 1; n != len(lostReasons) || reasons[n].name != "LOST_REASONS" {
		t.Fatalf("%d reasons in C, %d names in Go", n, len(lostReasons))
	}
	// Each name holds a word of its constant, so that the order cannot slip.
	for i, name := range lostReasons {
		words := strings.Split(strings.ToLower(strings.TrimPrefix(reasons[i].name, "LOST_")), "_")
		if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, strings.TrimSuffix(w, "s")) }) {
			t.Errorf("%s is called %q", reasons[i].name, name)
		}
	}
	seen := map[string]bool{}
	for _, name := range lostReasons {
		seen[name] = true
	}
	if len(seen) != len(lostReasons) {
		t.Errorf("two reasons share a name: %v", slices.Sorted(maps.Keys(seen)))
	}
}

// TestEveryLossIsCounted: a reason that no program ever gives would be a promise
// that nothing keeps.
func TestEveryLossIsCounted(t *testing.T) {
	var all strings.Builder
	for _, pattern := range []string{"include/*.h", "*/*.c", "*/*.h"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
	}
	for _, r := range readHeader(t, "lost.h").enums["lost_reason"] {
		if r.name != "LOST_REASONS" && !strings.Contains(all.String(), fmt.Sprintf("lost(%s)", r.name)) {
			t.Errorf("no program counts %s", r.name)
		}
	}
}
