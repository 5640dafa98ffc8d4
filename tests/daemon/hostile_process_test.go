// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// hostileText ends lines, labels and strings, moves the cursor and is no UTF-8.
const hostileText = "\"}\n# HELP x\r\x1b[2J\x1b]0;x\a\x7f\u202e\\\xff\xfe{"

// mostLabel and mostMemory bound what a hostile process makes the daemon say and keep.
const (
	mostLabel  = 256
	mostMemory = 80 << 20
)

// TestHostileProcess: a process that looks like an engine, with an endless command
// line and an ugly name, is reported in clean and bounded words.
func TestHostileProcess(t *testing.T) {
	t.Parallel()
	// The kernel gives arguments a quarter of the stack's limit. Children of other
	// tests may have the larger stack too.
	var stack unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &stack); err != nil {
		t.Fatal(err)
	}
	more := stack
	more.Cur = min(16<<20, more.Max)
	if err := unix.Setrlimit(unix.RLIMIT_STACK, &more); err != nil {
		t.Skipf("needs a stack of %d bytes: %v", more.Cur, err)
	}
	bad := play(t, "renamed", func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, name+"="+strconv.Quote(hostileText))
		cmd.Args = []string{"vllm", "serve", "model" + hostileText, "--served-model-name", hostileText + strings.Repeat("m", 100<<10)}
		for range 20 {
			cmd.Args = append(cmd.Args, hostileText+strings.Repeat("x", 100<<10))
		}
	})
	if err := unix.Setrlimit(unix.RLIMIT_STACK, &stack); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(proc(bad.cmd.Process.Pid, "cmdline")); err != nil || len(b) < 2<<20 {
		t.Fatalf("the command line has %d bytes, %v", len(b), err)
	}
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {engines: true, ports: [%d]}", s.port))
	s.ask(t, 3)
	d.becomes(t, 3, "velo_agent_exchanges_total", "port", s.label())
	d.becomes(t, 0, "velo_agent_exchanges_total", "port", strconv.Itoa(bad.port))

	p, err := d.metrics()
	if err != nil {
		t.Fatal(err)
	}
	of := 0
	for family, f := range p {
		for _, m := range f.GetMetric() {
			if has(m, []string{"port", strconv.Itoa(bad.port)}) {
				of++
			}
			for _, l := range m.GetLabel() {
				if v := l.GetValue(); len(v) > mostLabel || !isClean(v) {
					t.Errorf("%s has %s=%.80q, %d bytes", family, l.GetName(), v, len(v))
				}
			}
		}
	}
	if of == 0 {
		t.Error("the hostile process has no series")
	}

	var report string
	eventually(t, "a report", patience, func() error {
		status, body, err := get(d.tcp, "/api/v1/report?for=1m")
		if report = body; err == nil && (status != http.StatusOK || !strings.Contains(body, strconv.Itoa(bad.port))) {
			err = fmt.Errorf("%d %.200s", status, body)
		}
		return err
	})
	wantClean(t, "the report", report)
	text, _, _ := velo(t, "diagnose", "--socket", d.Socket(), "--for", "1s", "--json")
	wantClean(t, "diagnose --json", text)
	text, _, _ = velo(t, "diagnose", "--socket", d.Socket(), "--for", "1s", "--color", "never")
	if !isClean(strings.ReplaceAll(text, "\n", "")) {
		t.Errorf("diagnose prints %q", text)
	}
	if log := d.said(); !isClean(strings.ReplaceAll(log, "\n", "")) {
		t.Errorf("the log is not clean: %q", log)
	}
	for what, pid := range map[string]int{"the daemon": d.PID, "the helper": d.helper(t)} {
		if rss := residentBytes(t, pid); rss > mostMemory {
			t.Errorf("%s has %d bytes of memory", what, rss)
		}
	}
}

func wantClean(t *testing.T, what, text string) {
	t.Helper()
	var x any
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		t.Errorf("%s is no JSON: %v: %.400s", what, err, text)
	}
	var walk func(x any)
	walk = func(x any) {
		switch x := x.(type) {
		case string:
			if len(x) > 4096 || !isClean(x) {
				t.Errorf("%s says %.80q, %d bytes", what, x, len(x))
			}
		case []any:
			for _, y := range x {
				walk(y)
			}
		case map[string]any:
			for k, y := range x {
				walk(k)
				walk(y)
			}
		}
	}
	walk(x)
}

func isClean(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func residentBytes(t *testing.T, pid int) int {
	t.Helper()
	kb, err := strconv.Atoi(strings.TrimSuffix(fields(t, proc(pid, "status"))["VmRSS"], " kB"))
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
