// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// split is one TTFT or gap, by stage.
type split = [attribution.NumStages]time.Duration

// jitter is a number of 0 to 0.99 that depends on i alone.
func jitter(i int) float64 { return float64(i*37%100) / 100 }

// around is d, or up to a fifth more.
func around(d time.Duration, i int) time.Duration { return d + time.Duration(float64(d)*jitter(i)/5) }

func fillTTFT(p *Port, n int, of func(i int) split) {
	p.TTFT = &attribution.Histogram{}
	for s := range p.Stages {
		p.Stages[s].TTFT = &attribution.Histogram{}
	}
	for i := range n {
		var sum time.Duration
		for s, d := range of(i) {
			p.Stages[s].TTFT.Add(d)
			sum += d
		}
		p.TTFT.Add(sum)
	}
	p.Exchanges = new(uint64(n))
}

func fillGaps(p *Port, n int, of func(i int) split) {
	p.Gap = &attribution.Histogram{}
	for _, s := range []attribution.Stage{attribution.Engine, attribution.SendQueue, attribution.Unexplained} {
		p.Stages[s].Gap = &attribution.Histogram{}
	}
	for i := range n {
		var sum time.Duration
		for s, d := range of(i) {
			if h := p.Stages[s].Gap; h != nil {
				h.Add(d)
				sum += d
			}
		}
		p.Gap.Add(sum)
	}
}

func samples(n int, d time.Duration) *attribution.Histogram {
	h := &attribution.Histogram{}
	for i := range n {
		h.Add(around(d, i))
	}
	return h
}

// quiet is an exchange that nothing disturbs.
func quiet(i int) split {
	return split{
		attribution.AcceptWait: around(40*us, i), attribution.WakeToRun: around(25*us, i+1),
		attribution.RuntimeHandoff: around(8*us, i+2), attribution.Reader: around(60*us, i+3),
		attribution.Engine: around(98*ms, i+4), attribution.SendQueue: around(15*us, i+5),
		attribution.Unexplained: around(2*us, i+6),
	}
}

func quietGap(i int) split {
	return split{attribution.Engine: around(11*ms, i), attribution.SendQueue: around(12*us, i+1)}
}

// healthy is a node with one engine that nothing disturbs.
func healthy() *Measured {
	p := Port{
		Port: 8000, Addresses: []string{"0.0.0.0", "::"}, Process: "python3", Engine: "vllm", PID: 4121,
		Cgroup: "/system.slice/vllm.service", NetNS: 4026531840,
		Connections: new(uint64(32)),
		Accept: &Accept{
			Depth: 0, HighWater: new(uint64(3)), Limit: 2048, Somaxconn: 4096, Arrivals: new(uint64(32)),
			Overflows: new(uint64(0)), Wait: samples(32, 45*us), WaitRung: "fexit/inet_csk_accept", EMFILE: new(uint64(0)),
		},
		Loss: Loss{
			Retransmits: new(uint64(0)), ResetsSent: new(uint64(0)), ResetsReceived: new(uint64(1)), ZeroWindows: new(uint64(0)),
			RwndLimited: new(time.Duration(0)), SndbufLimited: new(time.Duration(0)),
			NodeListenOverflows: new(uint64(0)), NodeListenDrops: new(uint64(0)), NodeUDPRcvbufErrors: new(uint64(0)),
		},
		Sched: []Role{
			{
				Name: "uvicorn", Threads: 1, Wakeups: new(uint64(14000)), Wait: samples(14000, 22*us), OnCPU: new(3100 * ms), RunDelay: new(310 * ms),
				Preempted: new(uint64(12)), Throttled: &Throttle{Periods: 100, ThrottledPeriods: 0, Quota: 8},
			},
			{Name: "VLLM::EngineCore", Threads: 9, Wakeups: new(uint64(52000)), Wait: samples(52000, 18*us), OnCPU: new(12400 * ms), RunDelay: new(95 * ms)},
		},
	}
	fillTTFT(&p, 1204, quiet)
	p.FirstWrite = samples(1204, 2*ms)
	fillGaps(&p, 24000, quietGap)
	return &Measured{
		Window: 10 * time.Second,
		Node:   Node{Hostname: "gpu-node-7", Kernel: "6.18.0", AgentVersion: "0.1.0"},
		Ports:  []Port{p},
		Streams: []Stream{{
			ID: "4f2a", Port: 8000, NetNS: 4026531840, TTFT: 121 * ms, WorstGap: 13 * ms,
			TTFTStages: map[string]time.Duration{"engine": 120 * ms, "reader": 700 * us},
			GapStages:  map[string]time.Duration{"engine": 12900 * us, "send_queue": 100 * us},
		}},
		Coverage: []Coverage{
			{Signal: "accepted", Rung: "fexit/inet_csk_accept"},
			{Signal: "wake_to_run", Rung: "tp_btf/sched_waking+sched_switch"},
			{Signal: "read", Rung: "tp_btf/tcp_rcv_space_adjust"},
			{Signal: "send_start", Rung: "fentry/tcp_sendmsg", BetterRefused: []Refused{{
				Rung: "tp_btf/tcp_sendmsg_locked", Why: "this kernel has no such tracepoint (kernel BTF holds no btf_trace_tcp_sendmsg_locked)",
			}}},
		},
		Agent: AgentCost{
			RSSBytes: 31 << 20, KernelMapBytes: 4 << 20, CPU: 120 * ms,
			Lost:     map[string]uint64{"ring/full": 0},
			Programs: []ProgramCost{{Name: "data_ready", Runs: 51234, NSPerRun: 142}, {Name: "send_length", Runs: 25204}},
		},
	}
}

// jammed is a frontend whose clients sit in the accept queue, the case of velo's
// ttft-gap-diagnosis.
func jammed() *Measured {
	m := healthy()
	p := &m.Ports[0]
	p.Port, p.Process, p.Engine, p.PID = 9345, "dynamo-frontend", "", 991
	fillTTFT(p, 1204, func(i int) split {
		s := quiet(i)
		s[attribution.AcceptWait] = around(1100*ms, i)
		return s
	})
	p.Accept = &Accept{
		Depth: 3896, HighWater: new(uint64(4096)), Limit: 4096, Somaxconn: 4096, Arrivals: new(uint64(29000)),
		Overflows: new(uint64(3912)), Wait: samples(1204, 1150*ms), WaitRung: "fexit/inet_csk_accept", EMFILE: new(uint64(0)),
	}
	p.Loss.NodeListenOverflows, p.Loss.NodeListenDrops = new(uint64(3912)), new(uint64(3912))
	p.Cgroup, p.Connections = "/kubepods/frontend", new(uint64(29000))
	p.Sched = []Role{{Name: "tokio-rt-worker", Threads: 8, Wakeups: new(uint64(66000)), Wait: samples(66000, 30*us), OnCPU: new(9200 * ms), RunDelay: new(410 * ms)}}
	m.Streams[0].Port = 9345
	m.Streams[0].TTFT, m.Streams[0].TTFTStages["accept_wait"] = 1421*ms, 1300*ms
	return m
}

// noPorts is a node on which nothing is served.
func noPorts() *Measured {
	m := healthy()
	m.Ports, m.Streams = nil, nil
	return m
}

// unprivileged is what an ordinary user may see: the listener and its queue.
func unprivileged() *Measured {
	m := healthy()
	m.Streams = nil
	m.Ports = []Port{{Port: 8000, Addresses: []string{"127.0.0.1"}, Accept: &Accept{Depth: 0, Limit: 2048, Somaxconn: 4096}}}
	m.Coverage = nil
	for _, s := range []string{"accepted", "wake_to_run", "send_start", "left", "read", "arrived"} {
		m.Coverage = append(m.Coverage, Coverage{Signal: s, Missing: true, Note: "lost: what rests on " + s, BetterRefused: []Refused{
			{Rung: "tp_btf", Why: "missing right: CAP_BPF, CAP_PERFMON (run as root)"},
		}})
	}
	m.Agent.Programs = nil
	m.Preconditions = []Precondition{
		{Key: "net.core.somaxconn", Want: ">= 4096", Have: "4096", State: "ok"},
		{Key: "net.core.rmem_max", Want: ">= 8388608", Have: "212992", State: "wrong", Origin: "/etc/sysctl.conf", Fix: "sysctl -w net.core.rmem_max=8388608"},
		{Key: "vm.max_map_count", State: "unknown"},
	}
	return m
}

// hostile is a node whose names were chosen to harm the reader.
func hostile() *Measured {
	m := healthy()
	p := &m.Ports[0]
	p.Process = "x\x1b[2J\x1b]0;owned\x07\r\n| `rm` <script> \u202egnp\x9b1m\xff"
	p.Sched[0].Name = p.Process
	p.Cgroup = p.Process
	p.Addresses = []string{p.Process}
	m.Node.Hostname = p.Process
	m.Coverage[0].Note = p.Process
	m.Streams[0].ID = p.Process
	m.Agent.Lost[p.Process] = 3
	m.Ports[0].Sched[0].RunDelay = new(9 * time.Second)
	return m
}
