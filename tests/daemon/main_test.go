// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

// role makes this test's binary another program, see roles_test.go.
const role = "VELO_AGENT_DAEMON_TEST_ROLE"

// scratch holds the program under test. Any user may run what is in it.
var scratch string

func TestMain(m *testing.M) {
	if play, ok := roles[os.Getenv(role)]; ok {
		play()
		return
	}
	// The tests wait more than they work.
	flag.Parse()
	err := flag.Set("test.parallel", "8")
	if err == nil {
		scratch, err = os.MkdirTemp("", "velo-agent-daemon-")
	}
	if err == nil {
		err = os.Chmod(scratch, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(scratch)
		os.Exit(code)
	}))
}

// program builds velo-agent, once for all tests.
var program = sync.OnceValues(func() (string, error) { return live.Build(context.Background(), scratch) })

// lacking says why no daemon with probes can run here, or is empty.
var lacking = sync.OnceValue(func() string {
	path, err := program()
	if err != nil {
		return "" // start reports it
	}
	return live.Lacking(path)
})

// needProbes skips the test where no daemon with probes can run.
func needProbes(t *testing.T) {
	t.Helper()
	if why := lacking(); why != "" {
		t.Skip(why)
	}
}

// eventually asks until f is content, and fails the test where it never is.
func eventually(t *testing.T, what string, within time.Duration, f func() error) {
	t.Helper()
	end := time.Now().Add(within)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// patience is how long a test waits for what is to come but for which no time is
// promised.
const patience = 45 * time.Second

// soon is the promised time within which probes are gone.
const soon = time.Second

// promptly is eventually for what is promised within soon. Where more wants to run
// than there are CPUs nobody can promise that; then it is told how long it took.
func promptly(t *testing.T, what string, f func() error) {
	t.Helper()
	began := time.Now()
	eventually(t, what, patience, f)
	took := time.Since(began)
	if took <= soon {
		return
	}
	if busy := load(); busy > float64(runtime.NumCPU()) {
		t.Logf("%s: only after %v, with %v tasks that want to run", what, took, busy)
		return
	}
	t.Errorf("%s: only after %v", what, took)
}

// load is the kernel's average of the last minute; 0 where it is not known.
func load() (tasks float64) {
	b, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(b), &tasks)
	return tasks
}

// lines are those of a text that hold all the words.
func lines(text string, words ...string) (found []string) {
next:
	for line := range strings.Lines(text) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}
