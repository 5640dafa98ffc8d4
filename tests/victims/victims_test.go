// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a victim or skips where its program cannot be had.
func start(t *testing.T, cfg Config) *Victim {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	v, err := Start(ctx, cfg)
	if err != nil && (cfg.Kind == Python || cfg.Kind == Nginx || errors.Is(err, exec.ErrNotFound)) {
		t.Skipf("cannot be built or installed here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Stop(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func client(t *testing.T, v *Victim, cfg ClientConfig) *Client {
	t.Helper()
	cfg.Addr, cfg.CPU = v.Addr(), NoPin
	c := NewClient(cfg)
	t.Cleanup(func() { c.Close() })
	return c
}

// do runs one exchange and returns both sides' account of it.
func do(t *testing.T, v *Victim, c *Client, req Request) (Result, Entry) {
	t.Helper()
	before, err := v.Log()
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	entries, err := v.WaitLog(ctx, len(before)+1)
	if err != nil {
		t.Fatal(err)
	}
	e := entries[len(entries)-1]
	if e.RemotePort != res.LocalPort || e.Ordinal != res.Ordinal || e.Case != req.Case.String() {
		t.Fatalf("the log says port %d, ordinal %d, case %q; the client did %d, %d, %q",
			e.RemotePort, e.Ordinal, e.Case, res.LocalPort, res.Ordinal, req.Case)
	}
	if len(res.Events) != req.Case.NumChunks() {
		t.Fatalf("%d content events, want %d", len(res.Events), req.Case.NumChunks())
	}
	return res, e
}

// atLeast checks an injected time against what was asked for and against what
// the client saw.
func atLeast(t *testing.T, what string, got int64, asked, seen time.Duration) {
	t.Helper()
	if got < asked.Nanoseconds() || got > seen.Nanoseconds() {
		t.Errorf("%s: injected %v, asked %v, the client saw %v", what, time.Duration(got), asked, seen)
	}
}

func set(t *testing.T, f func(time.Duration) error, d time.Duration) {
	t.Helper()
	if err := f(d); err != nil {
		t.Fatal(err)
	}
}

func TestCases(t *testing.T) {
	const ms = time.Millisecond
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			v := start(t, Config{Kind: kind, CPU: 0})
			c := client(t, v, ClientConfig{})
			if _, e := do(t, v, c, Request{}); e.Injected.Engine != 0 || e.Injected.AcceptWait != 0 || e.Injected.Reader != 0 {
				t.Errorf("undisturbed, yet injected: %+v", e.Injected)
			}
			for range 3 {
				res, e := do(t, v, c, Request{Case: Case{Engine: 10 * ms, Role: true}})
				atLeast(t, "engine", e.Injected.Engine, 10*ms, res.TTFT())
				if res.Role == 0 || res.Role > res.Events[0].Last {
					t.Errorf("the role came at %d, content at %d", res.Role, res.Events[0].Last)
				}
				res, e = do(t, v, c, Request{Case: Case{Gaps: []time.Duration{2 * ms, 5 * ms, 10 * ms}}})
				content := slices.DeleteFunc(e.Writes, func(w Write) bool { return w.What != "content" })
				if len(content) != 4 {
					t.Fatalf("%d content writes, want 4: %+v", len(content), e.Writes)
				}
				for i, asked := range []time.Duration{2 * ms, 5 * ms, 10 * ms} {
					if gap := time.Duration(content[i+1].Before - content[i].After); gap < asked {
						t.Errorf("gap %d: %v between the writes, asked %v", i, gap, asked)
					}
					if res.Events[i].First < content[i].Before {
						t.Errorf("event %d was read before it was written", i)
					}
				}
				res, e = do(t, v, c, Request{Expect: true, Prompt: "a prompt"})
				if res.Interim == 0 || res.Interim > res.SentBefore {
					t.Errorf("interim answer at %d, body at %d", res.Interim, res.SentBefore)
				}
				res, _ = do(t, v, c, Request{Split: 3 * ms, Case: Case{Early: true, Engine: 5 * ms}})
				if res.TTFB() > res.TTFT() {
					t.Errorf("headers after %v, content after %v", res.TTFB(), res.TTFT())
				}
			}
			for range 50 {
				do(t, v, c, Request{})
			}
			delays(t, v, c)
		})
	}
}

// delays tests what no header can carry.
func delays(t *testing.T, v *Victim, c *Client) {
	const ms = time.Millisecond
	if v.Config.Kind == Nginx {
		if err := v.SetAcceptDelay(ms); !errors.Is(err, ErrImpossible) {
			t.Errorf("setting nginx's accept delay: %v", err)
		}
		return
	}
	for range 3 {
		set(t, v.SetAcceptDelay, 5*ms)
		res, e := do(t, v, c, Request{Fresh: true, Case: Case{Engine: 10 * ms, Label: "accept=5ms"}})
		set(t, v.SetAcceptDelay, 0)
		atLeast(t, "accept_wait", e.Injected.AcceptWait, 5*ms, time.Duration(res.Done-res.ConnectStart))
		atLeast(t, "engine", e.Injected.Engine, 10*ms, res.TTFT())
		set(t, v.SetReaderDelay, 2*ms)
		res, e = do(t, v, c, Request{Case: Case{Label: "reader=2ms"}})
		set(t, v.SetReaderDelay, 0)
		atLeast(t, "reader", e.Injected.Reader, 2*ms, res.TTFT())
		if _, e = do(t, v, c, Request{Fresh: true}); e.Injected.AcceptWait != 0 || e.Injected.Reader != 0 {
			t.Errorf("undisturbed, yet injected: %+v", e.Injected)
		}
	}
}

func TestHandoff(t *testing.T) {
	for _, kind := range []Kind{C, Go} {
		t.Run(string(kind), func(t *testing.T) {
			v := start(t, Config{Kind: kind, CPU: NoPin, Handoff: true})
			c := client(t, v, ClientConfig{})
			ways := []func(time.Duration) error{v.SetHandoffDelay}
			if kind == C {
				ways = append(ways, v.SetHandoffBusy)
			}
			for _, way := range ways {
				set(t, way, 5*time.Millisecond)
				res, e := do(t, v, c, Request{})
				set(t, way, 0)
				atLeast(t, "runtime_handoff", e.Injected.Handoff, 5*time.Millisecond, res.TTFT())
				if _, e = do(t, v, c, Request{}); e.Injected.Handoff == 0 {
					t.Error("an idle hand-over took no time")
				}
			}
		})
	}
	if _, err := Start(context.Background(), Config{Kind: Python, CPU: NoPin, Handoff: true}); !errors.Is(err, ErrImpossible) {
		t.Errorf("handing over in Python: %v", err)
	}
}

func TestClosedWindow(t *testing.T) {
	for _, kind := range []Kind{C, Go} {
		for _, sizes := range [][]int{{64, 512 << 10}, {512 << 10}} {
			v := start(t, Config{Kind: kind, CPU: NoPin, SndBuf: 16 << 10})
			c := client(t, v, ClientConfig{RcvBuf: 16 << 10})
			stall := 30 * time.Millisecond
			res, e := do(t, v, c, Request{Case: Case{Sizes: sizes, Joined: true}, Stall: stall})
			if stalled := res.StallEnd - res.StallStart; e.Injected.SendQueue < stalled/2 {
				t.Errorf("%s %v: %v in blocked writes, stalled %v", kind, sizes, time.Duration(e.Injected.SendQueue), time.Duration(stalled))
			}
			_, quick := do(t, v, c, Request{Case: Case{Sizes: sizes, Joined: true}})
			if quick.Injected.SendQueue >= e.Injected.SendQueue {
				t.Errorf("%s %v: undisturbed writes took %v", kind, sizes, time.Duration(quick.Injected.SendQueue))
			}
		}
	}
}

func TestNetworks(t *testing.T) {
	for _, kind := range Kinds {
		for _, network := range []string{"tcp6", "tcp"} {
			t.Run(string(kind)+"/"+network, func(t *testing.T) {
				v := start(t, Config{Kind: kind, CPU: NoPin, Network: network, MPTCP: kind != Nginx})
				c := client(t, v, ClientConfig{Goroutine: true})
				do(t, v, c, Request{})
				do(t, v, c, Request{Close: true})
			})
		}
	}
}

func TestHog(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v := start(t, Config{Kind: C, CPU: 0})
	c := client(t, v, ClientConfig{})
	hog, err := StartHog(ctx, 0, 50, 10*time.Millisecond)
	if err != nil {
		t.Skipf("no real-time scheduling here: %v", err)
	}
	var sum int64
	for range 40 {
		_, e := do(t, v, c, Request{})
		sum += e.Injected.WakeToRun
		time.Sleep(3 * time.Millisecond)
	}
	if err := errors.Join(hog.Pause(), hog.Stop()); err != nil {
		t.Error(err)
	}
	if sum == 0 {
		t.Error("the hog delayed no wake-up")
	}
	if d, err := v.RunDelay(); err != nil || d.Nanoseconds() < sum {
		t.Errorf("the threads' run delay is %v (%v), the log's %v", d, err, time.Duration(sum))
	}
}

func TestMany(t *testing.T) {
	for _, goroutine := range []bool{false, true} {
		v := start(t, Config{Kind: C, CPU: 0, Answer: "marked"})
		results, err := Many(64, 2, ClientConfig{Addr: v.Addr(), CPU: NoPin, Goroutine: goroutine}, func(int, int) Request {
			return Request{Case: Case{Chunks: 5, Gap: 2 * time.Millisecond}}
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		entries, err := v.WaitLog(ctx, len(results))
		cancel()
		if err != nil || len(entries) != 128 {
			t.Fatalf("%d entries, %d results: %v", len(entries), len(results), err)
		}
	}
}

func TestCaseText(t *testing.T) {
	c := Case{
		Engine: 100 * time.Millisecond, Gaps: []time.Duration{2 * time.Millisecond, 2500 * time.Microsecond},
		Gap: time.Second, Chunks: 7, Sizes: []int{64, 1 << 20}, Early: true, Joined: true, Role: true, Label: "accept=5ms",
	}
	text := c.String()
	if again := ParseCase(text); again.String() != text || again.Gaps[1] != c.Gaps[1] || again.NumChunks() != 7 {
		t.Errorf("%q became %q", text, again)
	}
	if got := (Case{}).String(); got != "" {
		t.Errorf("the empty case is %q", got)
	}
}
