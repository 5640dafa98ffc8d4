// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// with replaces one stage of each quiet exchange.
func with(s attribution.Stage, d time.Duration) func(int) split {
	return func(i int) split {
		out := quiet(i)
		out[s] = around(d, i)
		return out
	}
}

func gapWith(s attribution.Stage, d time.Duration) func(int) split {
	return func(i int) split {
		out := quietGap(i)
		out[s] = around(d, i)
		return out
	}
}

// port changes the healthy node's one port.
func port(change func(p *Port)) func(*Measured) {
	return func(m *Measured) { change(&m.Ports[0]) }
}

func ttft(n int, of func(int) split) func(*Measured) {
	return port(func(p *Port) { fillTTFT(p, n, of) })
}

// tail gives every fiftieth exchange the delay.
func tail(s attribution.Stage, d time.Duration) func(int) split {
	return func(i int) split {
		if i%50 == 0 {
			return with(s, d)(i)
		}
		return quiet(i)
	}
}

// silence puts one pause of the engine among the gaps.
func silence(n int, pause time.Duration) func(*Measured) {
	return port(func(p *Port) {
		fillGaps(p, n, func(i int) split {
			if i == n/2 {
				return split{attribution.Engine: pause}
			}
			return quietGap(i)
		})
	})
}

// Each finding is raised by its cause, and not by what is near to it. Severity ""
// means: not raised.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name     string
		id       string
		severity string
		change   func(*Measured)
	}{
		{"emfile", "fd_exhausted", Critical, port(func(p *Port) { p.Accept.EMFILE = new(uint64(48000)) })},
		{"emfile not measured", "fd_exhausted", "", port(func(p *Port) { p.Accept.EMFILE = nil })},
		{"emfile none", "fd_exhausted", "", port(func(p *Port) {})},

		{"one overflow", "accept_overflow", Warning, port(func(p *Port) { p.Accept.Overflows = new(uint64(1)) })},
		{"burst of overflows", "accept_overflow", Critical, port(func(p *Port) {
			p.Accept.Overflows, p.Accept.Arrivals = new(uint64(3912)), new(uint64(29000))
		})},
		{"overflows without arrivals", "accept_overflow", Warning, port(func(p *Port) {
			p.Accept.Overflows, p.Accept.Arrivals = new(uint64(3912)), nil
		})},
		{"overflows of the namespace alone", "accept_overflow", Warning, port(func(p *Port) {
			p.Accept.Overflows, p.Loss.NodeListenOverflows = nil, new(uint64(7))
		})},
		{"overflows of another listener", "accept_overflow", "", port(func(p *Port) { p.Loss.NodeListenOverflows = new(uint64(7)) })},
		{"overflows not measured", "accept_overflow", "", port(func(p *Port) {
			p.Accept.Overflows, p.Loss.NodeListenOverflows = nil, nil
		})},

		{"accept wait half of TTFT", "accept_queue_wait", Critical, ttft(200, with(attribution.AcceptWait, 1100*ms))},
		{"accept wait a fifth of TTFT", "accept_queue_wait", Warning, ttft(200, with(attribution.AcceptWait, 30*ms))},
		{"accept wait in the tail", "accept_queue_wait", Warning, ttft(1000, tail(attribution.AcceptWait, 200*ms))},
		{"accept wait 5 %", "accept_queue_wait", "", ttft(200, with(attribution.AcceptWait, 5*ms))},
		{"accept wait of a few", "accept_queue_wait", "", ttft(minExchanges-1, with(attribution.AcceptWait, 1100*ms))},
		{"accept wait not measured", "accept_queue_wait", "", port(func(p *Port) {
			fillTTFT(p, 200, with(attribution.AcceptWait, 1100*ms))
			p.Stages[attribution.AcceptWait].TTFT = nil
		})},
		{"accept wait before the request", "accept_queue_wait", Warning, port(func(p *Port) { p.Accept.Wait = samples(200, 150*ms) })},
		{"accept wait of a few connections", "accept_queue_wait", "", port(func(p *Port) { p.Accept.Wait = samples(5, 150*ms) })},

		{"throttled", "cpu_throttled", Critical, port(func(p *Port) {
			p.Sched[0].Throttled = &Throttle{Periods: 100, ThrottledPeriods: 61, Time: 4 * time.Second, Quota: 6}
		})},
		{"throttled a little", "cpu_throttled", Warning, port(func(p *Port) {
			p.Sched[0].Throttled = &Throttle{Periods: 100, ThrottledPeriods: 8}
		})},
		{"throttled once", "cpu_throttled", "", port(func(p *Port) { p.Sched[0].Throttled = &Throttle{Periods: 100, ThrottledPeriods: 1} })},
		{"throttled in too few periods", "cpu_throttled", "", port(func(p *Port) { p.Sched[0].Throttled = &Throttle{Periods: 4, ThrottledPeriods: 4} })},
		{"no cgroup", "cpu_throttled", "", port(func(p *Port) { p.Sched[0].Throttled = nil })},

		{"wake-up slow", "cpu_starvation", Critical, ttft(200, with(attribution.WakeToRun, 740*ms))},
		{"wake-up slow in the tail", "cpu_starvation", Warning, ttft(1000, tail(attribution.WakeToRun, 200*ms))},
		{"wake-up 60 µs of 300 µs", "cpu_starvation", "", ttft(200, func(i int) split {
			return split{attribution.WakeToRun: 60 * us, attribution.Engine: 240 * us}
		})},
		{"wake-up of a few", "cpu_starvation", "", ttft(5, with(attribution.WakeToRun, 740*ms))},
		{"run delay of the engine", "cpu_starvation", Warning, port(func(p *Port) { p.Sched[1].RunDelay = new(9 * time.Second) })},
		{"run delay of a thread that hardly runs", "cpu_starvation", "", port(func(p *Port) {
			p.Sched[1].OnCPU, p.Sched[1].RunDelay = new(1*ms), new(2*ms)
		})},
		{"run delay not measured", "cpu_starvation", "", port(func(p *Port) { p.Sched[1].RunDelay = nil })},

		{"hand-over slow", "runtime_handoff", Warning, ttft(200, with(attribution.RuntimeHandoff, 20*ms))},
		{"hand-over quick", "runtime_handoff", "", ttft(200, with(attribution.RuntimeHandoff, 1*ms))},
		{"hand-over of a few", "runtime_handoff", "", ttft(5, with(attribution.RuntimeHandoff, 20*ms))},

		{"event loop blocked", "slow_reader", Critical, ttft(200, with(attribution.Reader, 200*ms))},
		{"event loop quick", "slow_reader", "", ttft(200, with(attribution.Reader, 1*ms))},
		{"event loop of a few", "slow_reader", "", ttft(5, with(attribution.Reader, 200*ms))},

		{"client reads slowly", "send_queue", Warning, port(func(p *Port) {
			fillGaps(p, 2000, gapWith(attribution.SendQueue, 3*ms))
		})},
		{"client stops for two seconds", "send_queue", Notice, port(func(p *Port) {
			fillGaps(p, 24000, func(i int) split {
				s := quietGap(i)
				if i == 7 {
					s[attribution.SendQueue] = 2 * time.Second
				}
				return s
			})
		})},
		{"client reads", "send_queue", "", port(func(p *Port) {})},
		{"client reads slowly, a few gaps", "send_queue", "", port(func(p *Port) {
			fillGaps(p, minGaps-1, gapWith(attribution.SendQueue, 3*ms))
		})},

		{"many retransmits", "retransmits", Warning, port(func(p *Port) { p.Loss.Retransmits = new(uint64(900)) })},
		{"some retransmits", "retransmits", "", port(func(p *Port) { p.Loss.Retransmits = new(uint64(20)) })},
		{"retransmits of a few writes", "retransmits", "", port(func(p *Port) {
			p.Loss.Retransmits = new(uint64(9))
			fillTTFT(p, 20, quiet)
			p.Gap = nil
		})},
		{"retransmits without writes", "retransmits", "", port(func(p *Port) {
			p.Loss.Retransmits, p.TTFT, p.Gap = new(uint64(900)), nil, nil
		})},
		{"retransmits not measured", "retransmits", "", port(func(p *Port) { p.Loss.Retransmits = nil })},

		{"resets sent", "resets", Warning, port(func(p *Port) { p.Loss.ResetsSent = new(uint64(9)) })},
		{"resets received", "resets", Notice, port(func(p *Port) { p.Loss.ResetsReceived = new(uint64(9)) })},
		{"single resets", "resets", "", port(func(p *Port) { p.Loss.ResetsSent, p.Loss.ResetsReceived = new(uint64(2)), new(uint64(2)) })},
		{"resets of many connections", "resets", "", port(func(p *Port) {
			p.Connections, p.Loss.ResetsSent = new(uint64(10000)), new(uint64(9))
		})},
		{"resets, connections not measured", "resets", "", port(func(p *Port) { p.Connections, p.Loss.ResetsSent = nil, new(uint64(9)) })},

		{"three seconds of silence", "engine_stall", Warning, silence(2000, 3*time.Second)},
		{"silence in one stream", "engine_stall", Warning, silence(40, 3*time.Second)},
		{"silence beyond the pace", "engine_stall", Notice, silence(2000, 700*ms)},
		{"an engine that is slow throughout", "engine_stall", "", port(func(p *Port) {
			fillGaps(p, 200, gapWith(attribution.Engine, 1500*ms))
		})},
		{"silence of a few gaps", "engine_stall", "", silence(minGapsOfStall-1, 3*time.Second)},
		{"silence, no gaps measured", "engine_stall", "", port(func(p *Port) { p.Gap = nil })},

		{"nothing but the engine", "engine_dominates", Notice, port(func(p *Port) {})},
		{"engine and starved", "engine_dominates", "", port(func(p *Port) { p.Sched[1].RunDelay = new(9 * time.Second) })},
		{"engine and throttled", "engine_dominates", "", port(func(p *Port) {
			p.Sched[0].Throttled = &Throttle{Periods: 100, ThrottledPeriods: 61}
		})},
		{"engine of a few", "engine_dominates", "", ttft(5, quiet)},
		{"engine a third", "engine_dominates", "", ttft(200, with(attribution.Reader, 200*ms))},

		{"unexplained a fifth", "unexplained_high", Notice, ttft(200, with(attribution.Unexplained, 25*ms))},
		{"unexplained for want of a stage", "unexplained_high", Notice, port(func(p *Port) {
			fillTTFT(p, 200, with(attribution.WakeToRun, 25*ms))
			p.Stages[attribution.WakeToRun].TTFT = nil
		})},
		{"unexplained in the gaps", "unexplained_high", Notice, port(func(p *Port) {
			fillGaps(p, 200, gapWith(attribution.Unexplained, 2*ms))
		})},
		{"unexplained little", "unexplained_high", "", port(func(p *Port) {})},
		{"unexplained of a few", "unexplained_high", "", ttft(5, with(attribution.Unexplained, 25*ms))},

		{"lost a few", "events_lost", Notice, func(m *Measured) { m.Agent.Lost["ring/full"] = 3 }},
		{"lost many", "events_lost", Warning, func(m *Measured) { m.Agent.Lost["ring/full"] = 3000 }},
		{"lost none", "events_lost", "", func(*Measured) {}},
		{"lost not counted", "events_lost", "", func(m *Measured) { m.Agent.Lost = nil }},

		{"a signal missing", "coverage_poor", Notice, func(m *Measured) { m.Coverage[1] = Coverage{Signal: "wake_to_run", Missing: true} }},
		{"a poorer rung", "coverage_poor", "", func(*Measured) {}},
		{"no coverage list", "coverage_poor", "", func(m *Measured) { m.Coverage = nil }},
	} {
		t.Run(c.id+"/"+c.name, func(t *testing.T) {
			m := healthy()
			c.change(m)
			r := Build(m)
			got := ""
			for _, f := range r.Findings {
				if f.ID == c.id {
					got = f.Severity
					if f.Title == "" || f.Remedy == "" || f.Docs == "" || len(f.Evidence) == 0 {
						t.Errorf("the finding has an empty part: %+v", f)
					}
				}
			}
			if got != c.severity {
				t.Errorf("%s is %q, want %q; findings: %v", c.id, got, c.severity, ids(r))
			}
		})
	}
}

func ids(r *Report) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, f.ID)
	}
	return out
}

// Nothing is a finding where nothing was measured.
func TestNoFindingWithoutData(t *testing.T) {
	m := &Measured{Window: 10 * time.Second, Ports: []Port{{Port: 1}, {Port: 2, Accept: &Accept{Limit: 5}, Sched: []Role{{Name: "x", Threads: 3}}}}}
	if r := Build(m); len(r.Findings) != 0 {
		t.Errorf("findings on nothing: %v", ids(r))
	}
	for s := range m.Ports[0].Stages {
		m.Ports[0].Stages[s] = StageTimes{TTFT: &attribution.Histogram{}, Gap: &attribution.Histogram{}}
	}
	m.Ports[0].TTFT, m.Ports[0].Gap = &attribution.Histogram{}, &attribution.Histogram{}
	if r := Build(m); len(r.Findings) != 0 {
		t.Errorf("findings on empty histograms: %v", ids(r))
	}
}

// A handful of exchanges of any shape raises no finding that rests on a share.
func TestSmallSamplesRaiseNothing(t *testing.T) {
	for s := range attribution.NumStages {
		m := healthy()
		fillTTFT(&m.Ports[0], minExchanges-1, with(s, 5*time.Second))
		fillGaps(&m.Ports[0], minGapsOfStall-1, quietGap)
		if r := Build(m); len(r.Findings) != 0 {
			t.Errorf("%s in %d exchanges: %v", s, minExchanges-1, ids(r))
		}
	}
}

func TestFindingsAreSortedAndExitCodeFollows(t *testing.T) {
	m := jammed()
	m.Agent.Lost["ring/full"] = 1
	r := Build(m)
	for i := 1; i < len(r.Findings); i++ {
		if rank(r.Findings[i-1].Severity) > rank(r.Findings[i].Severity) {
			t.Errorf("%s comes before %s", r.Findings[i-1].Severity, r.Findings[i].Severity)
		}
	}
	if got := ExitCode(r); got != 1 {
		t.Errorf("exit code of a jammed port is %d", got)
	}
	if r := Build(healthy()); ExitCode(r) != 0 {
		t.Errorf("exit code of a healthy port is not 0: %v", ids(r))
	}
	if got := ExitCode(Build(unprivileged())); got != 0 {
		t.Errorf("exit code of an unprivileged run is %d", got)
	}
}

func TestLimitBy(t *testing.T) {
	if got := (&Accept{Limit: 4 * 4096, Somaxconn: 4096, Listeners: 4}).LimitBy(); got != "somaxconn" {
		t.Errorf("four listeners of 4096 each: %q", got)
	}
	for _, c := range []struct {
		limit, somaxconn uint64
		want             string
	}{{128, 4096, "backlog"}, {4096, 4096, "somaxconn"}, {4096, 128, ""}, {128, 0, ""}, {0, 4096, ""}} {
		if got := (&Accept{Limit: c.limit, Somaxconn: c.somaxconn}).LimitBy(); got != c.want {
			t.Errorf("limit %d, somaxconn %d: %q, want %q", c.limit, c.somaxconn, got, c.want)
		}
	}
}

// The strongest cause decides what the send queue's remedy says.
func TestSendQueueNamesTheCause(t *testing.T) {
	for _, c := range []struct {
		name   string
		loss   Loss
		remedy string
	}{
		{"window", Loss{RwndLimited: new(8 * time.Second), SndbufLimited: new(1 * time.Second)}, "The clients do not read"},
		{"zero windows alone", Loss{ZeroWindows: new(uint64(4))}, "The clients do not read"},
		{"buffer", Loss{RwndLimited: new(time.Duration(0)), SndbufLimited: new(5 * time.Second)}, "The socket's send buffer"},
		{"nagle", Loss{RwndLimited: new(time.Duration(0)), SndbufLimited: new(time.Duration(0)), NagleWrites: new(uint64(90))}, "The server leaves Nagle"},
		{"loss", Loss{RwndLimited: new(time.Duration(0)), SndbufLimited: new(time.Duration(0)), Retransmits: new(uint64(40))}, "The network loses"},
		{"pacing", Loss{RwndLimited: new(time.Duration(0)), SndbufLimited: new(time.Duration(0)), Retransmits: new(uint64(0))}, "What is left is pacing"},
		{"not measured", Loss{}, "See with ss"},
	} {
		m := healthy()
		fillGaps(&m.Ports[0], 2000, gapWith(attribution.SendQueue, 3*ms))
		m.Ports[0].Loss = c.loss
		f := sendQueue.port(newView(m, &m.Ports[0]))
		if f == nil || len(f.Remedy) < len(c.remedy) || f.Remedy[:len(c.remedy)] != c.remedy {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}
