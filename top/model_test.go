// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/diagnosis"
)

func TestMain(m *testing.M) {
	if os.Getenv(onlyInitialise) != "" {
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// sizes that every screen is held to, the smaller ones for nothing but their bounds.
var sizes = []struct{ width, height int }{{80, 24}, {120, 40}, {200, 60}, {40, 10}, {10, 3}, {1, 1}}

// TestBounds walks through every screen at every size with every kind of node.
func TestBounds(t *testing.T) {
	for name, m := range map[string]*diagnosis.Measured{"four": four(), "hundred": hundred(), "none": node(), "hostile": hostile()} {
		for _, size := range sizes {
			for _, o := range []Options{{}, {Color: true}, {ASCII: true}} {
				t.Run(fmt.Sprintf("%s %dx%d %+v", name, size.width, size.height, o), func(t *testing.T) {
					v := newView(t, size.width, size.height, o)
					v.window(m)
					v.press("enter", "end", "esc", "tab", "down", "enter", "esc", "tab", "c", "pgdown", "esc", "h", "end", "esc", "/", "8", "enter")
					v.send(reading{err: errors.New(strings.Repeat("a long sentence ", 50))})
					v.press("p", "esc", "<", "r", "end")
					if o.ASCII && strings.ContainsFunc(v.View(), func(r rune) bool { return r > 0x7e }) {
						t.Errorf("not ASCII:\n%s", v.View())
					}
					if !o.Color && strings.Contains(v.View(), "\x1b") {
						t.Error("colours that were not asked for")
					}
				})
			}
		}
	}
}

func TestPorts(t *testing.T) {
	v := shownAt(t, 80, 24, four())
	v.says(
		"ports 4 · by TTFT p99, highest first", "p99▼", "TTFT", "gap",
		">", "9345 dynamo-fr", "accept_wait 91%", "0/128", "1.2s",
		"8000 vllm", "engine 100%", "600",
		"window 2.00s at 14:03:07", "3 signals missing: press c", "gpu-node-7", "agent 0.1.0",
		"enter open", "q quit",
	)
	// What was not measured is not 0.
	for l := range strings.Lines(v.View()) {
		if f := strings.Fields(l); len(f) > 0 && f[0] == "11434" {
			if got := strings.Join(f[1:], " "); got != "- - - - - - - - - 0" {
				t.Errorf("a port of which nothing is known: %q", got)
			}
		}
	}
	v = shownAt(t, 120, 40, four())
	v.says("9345 dynamo-frontend", "vllm python3", "1.21s", "200")
}

func TestSort(t *testing.T) {
	v := shownAt(t, 120, 40, four())
	for _, c := range []struct{ key, up, down string }{
		{"1", "8000 9345 11434 30000", "30000 11434 9345 8000"},
		{"2", "9345 30000 8000 11434", "8000 30000 9345 11434"},
		{"3", "30000 9345 8000 11434", "8000 9345 30000 11434"},
		{"4", "30000 9345 8000 11434", "8000 9345 30000 11434"},
		{"5", "8000 9345 11434 30000", "9345 8000 11434 30000"},
		{"6", "8000 9345 11434 30000", "9345 8000 11434 30000"},
		{"7", "8000 9345 11434 30000", "9345 8000 11434 30000"},
		{"8", "8000 9345 11434 30000", "9345 8000 11434 30000"},
		{"9", "8000 9345 11434 30000", "9345 8000 11434 30000"},
		{"!", "11434 30000 8000 9345", "9345 8000 11434 30000"},
	} {
		v.press(c.key)
		first, second := c.down, c.up
		if columns[v.sort].ascending {
			first, second = c.up, c.down
		}
		if got := v.ports(); got != first {
			t.Errorf("key %s: %s, want %s", c.key, got, first)
		}
		v.press("r")
		if got := v.ports(); got != second {
			t.Errorf("key %s reversed: %s, want %s", c.key, got, second)
		}
	}
	full := four()
	full.Ports[0].Accept.Depth, full.Ports[1].Accept.Depth, full.Ports[2].Accept = 128, 64, nil
	v.window(full)
	if v.press("0"); v.ports() != "9345 8000 11434 30000" {
		t.Errorf("by accept: %s", v.ports())
	}
}

// TestSortWalks reaches each column with < and >, around the ends.
func TestSortWalks(t *testing.T) {
	v := shownAt(t, 120, 40, four())
	v.press("1", "<")
	v.says("by findings, highest first")
	for _, c := range columns {
		v.press(">")
		v.says("by " + c.name + ",")
	}
}

func TestSelectionFollowsThePort(t *testing.T) {
	v := shownAt(t, 80, 24, four())
	v.press("1")
	if v.selected.port != 8000 {
		t.Errorf("nothing chosen, %v is selected and not the first", v.selected)
	}
	v.press("down")
	if v.selected.port != 9345 {
		t.Fatalf("one down, %v is selected", v.selected)
	}
	v.press("r")
	v.window(four())
	if v.selected.port != 9345 {
		t.Errorf("sorted the other way, %v is selected", v.selected)
	}
	v.window(node(served(8000, "python3", 10, 0, ms)))
	if v.selected.port != 8000 {
		t.Errorf("its port gone, %v is selected", v.selected)
	}
}

func TestOnePort(t *testing.T) {
	v := shownAt(t, 120, 60, four())
	v.press("enter")
	v.says(
		"port 9345", "dynamo-frontend", "Where TTFT goes", "Where the gaps go", "accept_wait  ", "█", "p99 1.21 s",
		"accept    0 of 128 deep", "loss      3 retransmits", "sched     uvicorn ×2", "4f2a.0",
		"critical accept_queue_wait", "→",
	)
	v.silent("Coverage", "8000", "coverage_poor", "4f2a.1")
	v.press("esc")
	v.says("ports 4")

	v = newView(t, 120, 60, Options{Color: true})
	v.window(four())
	v.press("enter")
	v.says("accept_wait")
	v.silent("Coverage")

	v = shownAt(t, 80, 24, four())
	v.press("enter")
	v.says("lines 1-21 of")
	v.press("end")
	v.says("Findings", "docs/")
	v.press("home")
	v.says("lines 1-21 of")
	v.window(node(served(8000, "python3", 10, 0, ms)))
	v.says("Port 9345 is no longer watched")
}

func TestSamePortOfTwoNamespaces(t *testing.T) {
	a, b := served(8000, "one", 10, 0, ms), served(8000, "two", 10, 0, ms)
	b.NetNS = 2
	v := shownAt(t, 80, 24, node(a, b))
	v.press("down", "enter")
	v.says("port 8000 of network namespace 2", "(two)")
	v.silent("(one)")
}

// TestFindingsAndStreamsOfTwins: each goes to the port of its network namespace.
func TestFindingsAndStreamsOfTwins(t *testing.T) {
	a, b := served(8000, "one", 10, 0, ms), served(8000, "two", 10, 0, ms)
	b.NetNS, b.Accept.Overflows = 2, new(uint64(3))
	v := shownAt(t, 80, 60, node(a, b))
	for i, want := range []int{0, 1} {
		if got := len(v.rows[i].findings); got != want {
			t.Errorf("port 8000 of namespace %d has %d findings, want %d", v.rows[i].NetNS, got, want)
		}
	}
	v.press("enter")
	v.says("4f2a.0")
	v.silent("4f2a.1", "accept_overflow")
	v.press("esc", "down", "enter")
	v.says("4f2a.1", "accept_overflow")
	v.silent("4f2a.0")
	v.press("esc", "tab")
	v.says(":8000 one  4f2a.0  network namespace 1", ":8000 two  4f2a.1  network namespace 2")
	v.press("down", "enter")
	v.says("port 8000 of network namespace 2", "(two)")
}

func TestFilter(t *testing.T) {
	v := shownAt(t, 80, 24, four())
	for filter, want := range map[string]string{"VLLM": "8000", "python": "8000", "34": "9345 11434", "dynamo": "9345"} {
		if v.press("/", filter, "enter", "6"); v.ports() != want {
			t.Errorf("filter %q: %s, want %s", filter, v.ports(), want)
		}
		v.press("esc")
	}
	v.press("/", "q", "q")
	v.says(`ports 0 of 4 · filter "qq" · enter keeps it`, "No port, process or engine holds")
	v.press("backspace", "ctrl+u", "9", "3", "enter")
	v.says(`ports 1 of 4 · filter "93" · by TTFT`)
	v.press("esc")
	v.says("ports 4 · by")
	v.press("/", "8000", "esc")
	if len(v.rows) != 4 {
		t.Errorf("esc keeps the filter: %d rows", len(v.rows))
	}
}

func TestWorst(t *testing.T) {
	v := shownAt(t, 80, 24, four())
	v.press("tab")
	v.says("the worst exchanges since the watch began", ">:9345 dynamo-frontend  4f2a.0", "TTFT       1.42s  AAAAAAAAAAAAAAAAAAEE  accept_wait 1.30s, engine 120ms",
		"worst gap      -", "A accept_wait", "H runtime_handoff")
	v.press("down", "enter")
	v.says("port 8000")
	v.press("esc", "tab")
	v.says("ports 4")
	v.window(node())
	v.press("tab")
	v.says("No exchange was seen yet.")
	blind := four()
	blind.Streams = nil
	v.window(blind)
	v.says("press c to see which signal")
}

func TestCoverageAndHelp(t *testing.T) {
	v := shownAt(t, 120, 60, four())
	v.press("c")
	v.says("Coverage", "send_start       missing", "lost: blocked writes", "coverage_poor", "The agent itself")
	v.press("h")
	for _, k := range bindings {
		v.says(k.long)
	}
	v.press("esc", "esc")
	v.says("ports 4")
}

func TestZeroPorts(t *testing.T) {
	v := newView(t, 80, 24, Options{})
	v.says("Measuring: the first window ends in 2s.")
	v.window(node())
	v.says("No port is watched", "velo-agent top --port 8000", "ports 0")
	v.press("enter", "down", "r", "tab", "enter")
	v.says("No exchange was seen yet.")
}

func TestHundredPorts(t *testing.T) {
	v := shownAt(t, 80, 24, hundred())
	v.press("1")
	v.says(">20000", "20018")
	v.silent("20019")
	v.press("pgdown")
	v.says(">20019")
	v.press("end")
	v.says(">20099", "20081")
	v.silent("20080")
	v.press("up")
	v.says(">20098", "20099")
	v.send(tea.WindowSizeMsg{Width: 80, Height: 12})
	v.says(">20098")
	v.press("home", "jjj")
	v.says(">20003")
}

func hostile() *diagnosis.Measured {
	m := four()
	p := &m.Ports[0]
	p.Process = "x\x1b[2J\x1b]0;owned\x07\r\n\u202egnp\x9b1m\xff\u0301\u65e5\u672c"
	p.Engine, p.Cgroup, p.Sched[0].Name, m.Node.Hostname, m.Streams[0].ID = p.Process, p.Process, p.Process, p.Process, p.Process
	m.Coverage[1].Note = p.Process
	return m
}

func TestControlCharacters(t *testing.T) {
	v := shownAt(t, 120, 40, hostile())
	check := func() {
		t.Helper()
		for _, r := range v.View() {
			if r != '\n' && (r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u202e') {
				t.Errorf("%q is on the screen:\n%q", r, v.View())
				return
			}
		}
	}
	v.says(`x\x1b[2J`)
	check()
	for _, k := range []string{"enter", "esc", "tab", "c", "esc"} {
		v.press(k)
		check()
	}
	v.send(reading{err: errors.New("no \x1b[2J socket\n\x07")})
	v.says(`no \x1b[2J socket \a`)
	check()
	v.press("tab", "/")
	v.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("a\x1b\u202eb"), Paste: true})
	if v.filter != "ab" {
		t.Errorf("pasted, the filter is %q", v.filter)
	}
	check()
}

func TestPause(t *testing.T) {
	v := shownAt(t, 80, 24, four())
	v.press("p")
	v.says("PAUSED")
	if cmd := v.send(tick{v.due}); cmd != nil {
		t.Error("paused, it measures")
	}
	v.window(node()) // was under way
	v.says("ports 4")
	if cmd := v.press("p"); cmd == nil || !v.measuring {
		t.Error("it does not go on at once")
	}
	v.silent("PAUSED")
}

func TestInterval(t *testing.T) {
	v := newView(t, 80, 24, Options{Interval: 3 * time.Second})
	for _, c := range []struct {
		key  string
		want time.Duration
	}{
		{"+", 5 * time.Second},
		{"-", 2 * time.Second},
		{"-", time.Second},
		{"-", Shortest},
		{"-", Shortest},
		{"++++++", Longest},
		{"+", Longest},
	} {
		if v.press(c.key); v.Interval != c.want {
			t.Errorf("after %s the interval is %v, want %v", c.key, v.Interval, c.want)
		}
	}
	old := v.due
	v.press("-")
	if cmd := v.send(tick{old}); cmd != nil {
		t.Error("a tick of the old interval measures")
	}
	if cmd := v.send(tick{v.due}); cmd == nil {
		t.Error("a tick of the new interval does not measure")
	}
	if cmd := v.send(tick{v.due}); cmd != nil {
		t.Error("two measure at once")
	}
}

func TestFailingSource(t *testing.T) {
	v := shownAt(t, 80, 24, four())
	cmd := v.send(reading{err: errors.New("measuring: asking the daemon at /run/velo-agent.sock: connection refused; is it running?")})
	v.says("! measuring: asking the daemon", "it running?; trying again every 2s", "9345 dynamo", "window 2.00s at 14:03:07")
	if cmd == nil {
		t.Error("it does not try again")
	}
	v.send(reading{err: errors.New(strings.Repeat("much to say ", 40))})
	v.says("… `velo-agent probes`")
	v.window(four())
	v.silent("trying again")
}

func TestMeasureSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		source sourceFunc
		says   string
	}{
		"slow":   {func(ctx context.Context) (*diagnosis.Measured, error) { <-ctx.Done(); return nil, ctx.Err() }, "`velo-agent probes`"},
		"broken": {func(context.Context) (*diagnosis.Measured, error) { return nil, errors.New("no BPF") }, "measuring: no BPF"},
		"silent": {func(context.Context) (*diagnosis.Measured, error) { return nil, nil }, "no reading and no reason"},
	} {
		m, err := measure(t.Context(), c.source, 10*ms)
		if m != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWindows: what is shown is the difference of two readings, and a source that
// has nothing new changes nothing.
func TestWindows(t *testing.T) {
	now := four()
	work := newJobs(t.Context())
	defer work.close()
	m := newModel(sourceFunc(func(context.Context) (*diagnosis.Measured, error) { return now, nil }), Options{}.withDefaults(), work)
	step := func(cmd tea.Cmd) { m.Update(cmd()) }
	step(m.Init())
	if m.report != nil {
		t.Fatal("one reading makes a window")
	}
	later := four()
	later.Window = 6 * time.Second
	later.Ports[0] = served(9345, "dynamo-frontend", 1000, 1100*ms, 108*ms)
	now = later
	step(m.measure())
	if m.report == nil || m.report.WindowS != 4 || *m.report.Ports[0].Exchanges != 600 {
		t.Fatalf("the window is %+v, want 600 exchanges in 4 s", m.report)
	}
	shown := m.report
	step(m.measure())
	if m.report != shown || m.err != nil {
		t.Error("the same reading again makes a window")
	}
}

func TestQuit(t *testing.T) {
	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {"enter", "q"}, {"/", "ctrl+c"}, {"jq"}} {
		v := shownAt(t, 80, 24, four())
		if cmd := v.press(keys...); !quits(cmd) {
			t.Errorf("%q does not quit", keys)
		}
	}
	v := shownAt(t, 80, 24, four())
	if cmd := v.press("/", "q"); quits(cmd) {
		t.Error("a letter of the filter quits")
	}
	v.press("esc")
	if _, ok := v.press("ctrl+z")().(tea.SuspendMsg); !ok {
		t.Error("ctrl+z does not suspend")
	}
	if cmd := v.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q"), Paste: true}); quits(cmd) {
		t.Error("what is pasted is taken for keys")
	}
}

func quits(cmd tea.Cmd) bool {
	if cmd == nil {
		return false
	}
	msg := cmd()
	if batch, ok := msg.(tea.BatchMsg); ok {
		for _, c := range batch {
			if quits(c) {
				return true
			}
		}
		return false
	}
	_, ok := msg.(tea.QuitMsg)
	return ok
}

// TestTheDocsTellTheKeys holds docs/top.md to the keys that there are.
func TestTheDocsTellTheKeys(t *testing.T) {
	page, err := os.ReadFile("../docs/top.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range bindings {
		for _, name := range strings.Fields(strings.Replace(k.Help().Key, "1-9", "1 9", 1)) {
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/top.md does not tell the key %s: %s", name, k.long)
			}
		}
	}
}
