// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/bpf/accept"
	"github.com/velo-agent/velo-agent/tests/victims"
)

// testCase is one disturbance of one server.
type testCase struct {
	name   string
	victim victims.Config
	client victims.ClientConfig
	stages []attribution.Stage // that the disturbance belongs in
	fresh  bool                // a connection for each exchange
	warm   int                 // undisturbed exchanges of the connection before each one that counts
	old    bool                // the connection is older than the agent
	gaps   bool                // the gaps are scored, not TTFT
	rung   string              // of the accept wait; "" for the best
	hog    bool                // a SCHED_FIFO hog on the server's CPU is the disturbance
	short  bool                // part of the short form
	cost   time.Duration       // of one pair, for choosing the number of samples

	// request makes the request of a disturbed or an undisturbed exchange.
	request func(on bool) victims.Request
	// disturb sets what the header cannot; nil: nothing.
	disturb func(v *victims.Victim, on bool) error
}

func (c *testCase) samples(short bool) int {
	if short {
		return max(10, min(40, int(2*time.Second/max(c.cost, time.Millisecond))))
	}
	return 200
}

func plain(bool) victims.Request { return victims.Request{} }

func fresh(bool) victims.Request { return victims.Request{Fresh: true, Close: true} }

// whenOn gives the case to disturbed requests only.
func whenOn(on victims.Case, base victims.Request) func(bool) victims.Request {
	return func(disturbed bool) victims.Request {
		r := base
		if disturbed {
			r.Case = on
		}
		return r
	}
}

func acceptDelay(d time.Duration) func(*victims.Victim, bool) error {
	return func(v *victims.Victim, on bool) error { return v.SetAcceptDelay(when(on, d)) }
}

func readerDelay(d time.Duration) func(*victims.Victim, bool) error {
	return func(v *victims.Victim, on bool) error { return v.SetReaderDelay(when(on, d)) }
}

func handoffDelay(d time.Duration) func(*victims.Victim, bool) error {
	return func(v *victims.Victim, on bool) error { return v.SetHandoffDelay(when(on, d)) }
}

func when(on bool, d time.Duration) time.Duration {
	if on {
		return d
	}
	return 0
}

const ms = time.Millisecond

// Stage lists.
var (
	accepting = []attribution.Stage{attribution.AcceptWait}
	reading   = []attribution.Stage{attribution.Reader}
	handing   = []attribution.Stage{attribution.RuntimeHandoff}
	waking    = []attribution.Stage{attribution.WakeToRun}
	thinking  = []attribution.Stage{attribution.Engine}
	sending   = []attribution.Stage{attribution.SendQueue}
	both      = []attribution.Stage{attribution.AcceptWait, attribution.Engine}
)

// cases lists everything that is tried.
func cases() []*testCase {
	var list []*testCase
	add := func(c *testCase) { list = append(list, c) }
	for _, kind := range []victims.Kind{victims.C, victims.Go, victims.GoHTTP, victims.Python} {
		k := victims.Config{Kind: kind}
		for _, d := range []time.Duration{5 * ms, 30 * ms, 200 * ms} {
			if kind == victims.GoHTTP && d != 5*ms {
				continue
			}
			add(&testCase{name: string(kind) + " accept " + d.String(), victim: k, stages: accepting, fresh: true, request: fresh, disturb: acceptDelay(d), cost: d, short: d == 5*ms && kind != victims.GoHTTP})
		}
		for _, d := range []time.Duration{2 * ms, 20 * ms} {
			if kind == victims.GoHTTP && d != 2*ms {
				continue
			}
			add(&testCase{name: string(kind) + " reader " + d.String(), victim: k, stages: reading, request: plain, disturb: readerDelay(d), cost: d, short: d == 2*ms})
		}
		for _, d := range []time.Duration{10 * ms, 100 * ms} {
			if kind == victims.GoHTTP && d != 10*ms {
				continue
			}
			add(&testCase{name: string(kind) + " engine " + d.String(), victim: k, stages: thinking, request: whenOn(victims.Case{Engine: d}, victims.Request{}), cost: d, short: d == 10*ms})
		}
		schedule := victims.Case{Gaps: []time.Duration{0, 2 * ms, 5 * ms, 10 * ms, 20 * ms}}
		add(&testCase{
			name: string(kind) + " gaps 2 5 10 20 ms", victim: k, stages: thinking, gaps: true, cost: 37 * ms, short: kind == victims.C,
			request: func(on bool) victims.Request {
				if on {
					return victims.Request{Case: schedule}
				}
				return victims.Request{Case: victims.Case{Chunks: 5}}
			},
		})
		add(&testCase{
			name: string(kind) + " accept 30ms and engine 100ms", victim: k, stages: both, fresh: true, disturb: acceptDelay(30 * ms), cost: 130 * ms,
			request: whenOn(victims.Case{Engine: 100 * ms}, victims.Request{Fresh: true, Close: true}),
		})
	}
	for _, d := range []time.Duration{10 * ms, 100 * ms} {
		add(&testCase{
			name: "nginx engine " + d.String(), victim: victims.Config{Kind: victims.Nginx}, stages: thinking, cost: d, short: d == 10*ms,
			request: whenOn(victims.Case{Engine: d}, victims.Request{}),
		})
	}
	for _, kind := range []victims.Kind{victims.C, victims.Go} {
		hand := victims.Config{Kind: kind, Handoff: true}
		if kind == victims.Go {
			hand.CPU = victims.NoPin // on one CPU its runtime often polls without sleeping: nobody is woken
		}
		add(&testCase{name: string(kind) + " hand-off to a busy thread 5ms", victim: hand, stages: handing, request: plain, disturb: handoffDelay(5 * ms), cost: 5 * ms, short: kind == victims.C})
		add(&testCase{
			name: string(kind) + " closed window 30ms", victim: victims.Config{Kind: kind, SndBuf: 16 << 10}, client: victims.ClientConfig{RcvBuf: 16 << 10}, stages: sending, gaps: true, cost: 30 * ms, short: kind == victims.C,
			request: func(on bool) victims.Request {
				// A small chunk passes, then a large one meets the closed window.
				return victims.Request{Case: victims.Case{Sizes: []int{64, 256 << 10}}, Stall: when(on, 30*ms), StallAfter: 1}
			},
		})
	}
	add(&testCase{name: "c hog of 50 % on the server's CPU", victim: victims.Config{Kind: victims.C}, stages: waking, request: plain, hog: true, cost: 5 * ms, short: true})
	list = append(list, variations()...)
	return list
}

// variations drives the same disturbances over other kinds of connections.
func variations() []*testCase {
	c, g := victims.Config{Kind: victims.C}, victims.Config{Kind: victims.Go}
	six, mapped, sixGo := c, c, g
	six.Network, mapped.Network, sixGo.Network = "tcp6", "tcp", "tcp6"
	mptcp := g
	mptcp.MPTCP = true
	think := victims.Case{Engine: 10 * ms}
	return []*testCase{
		{name: "c engine 10ms over IPv6", victim: six, stages: thinking, request: whenOn(think, victims.Request{}), cost: 10 * ms, short: true},
		{name: "c accept 5ms over IPv6", victim: six, stages: accepting, fresh: true, request: fresh, disturb: acceptDelay(5 * ms), cost: 5 * ms},
		{name: "go accept 5ms over IPv6", victim: sixGo, stages: accepting, fresh: true, request: fresh, disturb: acceptDelay(5 * ms), cost: 5 * ms},
		{name: "c engine 10ms v4-mapped", victim: mapped, stages: thinking, request: whenOn(think, victims.Request{}), cost: 10 * ms},
		{name: "c accept 5ms v4-mapped", victim: mapped, stages: accepting, fresh: true, request: fresh, disturb: acceptDelay(5 * ms), cost: 5 * ms},
		{name: "go MPTCP accept 5ms", victim: mptcp, stages: accepting, fresh: true, request: fresh, disturb: acceptDelay(5 * ms), cost: 5 * ms, short: true},
		{name: "go MPTCP reader 2ms", victim: mptcp, stages: reading, request: plain, disturb: readerDelay(2 * ms), cost: 2 * ms},
		{name: "go MPTCP engine 10ms", victim: mptcp, stages: thinking, request: whenOn(think, victims.Request{}), cost: 10 * ms},
		{name: "c engine 10ms, connection older than the agent", victim: c, stages: thinking, old: true, request: whenOn(think, victims.Request{}), cost: 10 * ms, short: true},
		{name: "c reader 2ms, connection older than the agent", victim: c, stages: reading, old: true, request: plain, disturb: readerDelay(2 * ms), cost: 2 * ms},
		{name: "go engine 10ms, connection older than the agent", victim: g, stages: thinking, old: true, request: whenOn(think, victims.Request{}), cost: 10 * ms},
		{name: "c engine 10ms, 50th exchange", victim: c, stages: thinking, fresh: true, warm: 49, request: whenOn(think, victims.Request{}), cost: 20 * ms, short: true},
		{name: "c reader 2ms, 50th exchange", victim: c, stages: reading, fresh: true, warm: 49, request: plain, disturb: readerDelay(2 * ms), cost: 12 * ms},
		{name: "c engine 10ms behind 100 Continue", victim: c, stages: thinking, request: whenOn(think, victims.Request{Expect: true}), cost: 10 * ms, short: true},
		{name: "go engine 10ms behind 100 Continue", victim: g, stages: thinking, request: whenOn(think, victims.Request{Expect: true}), cost: 10 * ms},
		{name: "c engine 10ms, request in two segments", victim: c, stages: thinking, request: whenOn(think, victims.Request{Split: ms}), cost: 12 * ms},
		{name: "c accept 5ms, rung first receive", victim: c, stages: accepting, fresh: true, rung: accept.RungFirstReceive, request: fresh, disturb: acceptDelay(5 * ms), cost: 5 * ms, short: true},
		{name: "c accept 200ms, rung first receive", victim: c, stages: accepting, fresh: true, rung: accept.RungFirstReceive, request: fresh, disturb: acceptDelay(200 * ms), cost: 200 * ms},
		{name: "c accept 5ms, rung first read", victim: c, stages: accepting, fresh: true, rung: accept.RungFirstRead, request: fresh, disturb: acceptDelay(5 * ms), cost: 5 * ms},
		{name: "c accept 200ms, rung first read", victim: c, stages: accepting, fresh: true, rung: accept.RungFirstRead, request: fresh, disturb: acceptDelay(200 * ms), cost: 200 * ms},
	}
}
