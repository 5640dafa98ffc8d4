// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// Measured is what was seen in one window. Pointers and nil slices mean "not
// measured"; Coverage says why.
type Measured struct {
	Window        time.Duration
	Node          Node
	Ports         []Port
	Coverage      []Coverage
	Streams       []Stream       // the slowest few, worst first; nil: streams were not followed
	Preconditions []Precondition // nil: they were not checked
	Agent         AgentCost
}

// Node says where and by which agent it was measured.
type Node struct {
	Hostname     string `json:"hostname"`
	Kernel       string `json:"kernel"`
	AgentVersion string `json:"agent_version"`
}

// Port is one watched listening port of one network namespace.
type Port struct {
	Port      uint16
	Addresses []string // local addresses it listens on
	Process   string   // name of the process that listens; "" where not known
	Engine    string   // "vllm", "llama.cpp", …; "" for what is not a known engine
	PID       int      // 0 where not known
	Cgroup    string   // "" where not known
	Container string   // 64 hex digits; "" where not known
	Pod       string   // its UID; "" where not known
	Model     string   // as the engine's command line names it; "" where not known
	NetNS     uint64   // inode of the network namespace; 0 where not known
	MPTCP     bool     // the listener is an MPTCP one

	Connections *uint64 // seen in the window, those older than it included
	Exchanges   *uint64 // inferred: inbound bytes after outbound bytes start one

	TTFT       *attribution.Histogram // last request byte arrived → first content left
	FirstWrite *attribution.Histogram // last request byte arrived → first response write left
	Gap        *attribution.Histogram // between two successive records

	// Stages partitions TTFT and Gap. A stage that could not be measured is nil
	// and its time is within unexplained.
	Stages [attribution.NumStages]StageTimes

	Accept *Accept
	Loss   Loss
	Sched  []Role
}

// StageTimes is one stage's part of each TTFT and of each gap. A sample of zero
// may be counted or not: the sums are what adds up.
type StageTimes struct {
	TTFT, Gap *attribution.Histogram
	// Exchanges that missed the objective for TTFT, or that for gaps, and in which
	// this stage took most of what missed it.
	TTFTMissed, GapMissed uint64
}

// Accept is the accept queue of a port, in connections. Several listeners of one
// port (SO_REUSEPORT) have a queue each: Depth and Limit are sums.
type Accept struct {
	Depth     uint64  // at the end of the window
	HighWater *uint64 // deepest at any arrival of the window, of one listener
	Limit     uint64  // the kernel's sk_max_ack_backlog; 0 where not known
	Listeners int     // 0 is taken for 1
	Somaxconn uint64  // of the listener's network namespace; 0 where not known
	Arrivals  *uint64 // connections that entered the queue
	Overflows *uint64 // connections that the full queue of this listener refused

	Wait           *attribution.Histogram // ESTABLISHED → accepted
	WaitRung       string                 // how Wait was seen
	WaitIsInterval bool                   // Wait runs to a later event than accept: an upper bound
	EMFILE         *uint64                // accepts that failed for lack of a file descriptor
}

// Loss is what was lost or held back. The Node figures are those of the port's
// whole network namespace.
type Loss struct {
	Retransmits    *uint64 // segments
	ResetsSent     *uint64
	ResetsReceived *uint64
	ZeroWindows    *uint64 // times that a client closed its window
	NagleWrites    *uint64 // writes that Nagle held until an acknowledgement came

	// Added over all connections, so they may exceed the window.
	RwndLimited   *time.Duration // held back by the client's window
	SndbufLimited *time.Duration // held back by the server's own send buffer

	NodeListenOverflows *uint64
	NodeListenDrops     *uint64
	NodeUDPRcvbufErrors *uint64
}

// Role is the threads of one name in the process behind a port. Times are added
// over its threads.
type Role struct {
	Name      string
	Threads   int
	Wakeups   *uint64
	Wait      *attribution.Histogram // woken (or pre-empted) → running
	OnCPU     *time.Duration
	RunDelay  *time.Duration // runnable and not running
	Preempted *uint64        // times that it was taken off the CPU while runnable
	Throttled *Throttle      // of the cgroup that the threads are in
}

// Throttle is what the CPU controller of a cgroup did in the window.
type Throttle struct {
	Periods          uint64
	ThrottledPeriods uint64
	Time             time.Duration
	Quota            float64 // CPUs; 0 where there is no quota or it is not known
}

// Stream is one response that was followed. IDs say nothing about its content.
type Stream struct {
	ID                    string
	Port                  uint16
	NetNS                 uint64        // of the port
	TTFT, WorstGap        time.Duration // 0: not seen in the window
	TTFTStages, GapStages map[string]time.Duration
}

// Precondition is a fact about the node that must hold.
type Precondition struct {
	Key    string `json:"key"`
	Want   string `json:"want,omitempty"`
	Have   string `json:"have,omitempty"`
	State  string `json:"state"` // "ok", "wrong", "unknown" or "not_applicable"
	Origin string `json:"origin,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// Coverage says how one signal was obtained.
type Coverage struct {
	Signal        string    `json:"signal"`
	Rung          string    `json:"rung,omitempty"`
	BetterRefused []Refused `json:"better_refused,omitempty"`
	Note          string    `json:"note,omitempty"`
	Missing       bool      `json:"missing,omitempty"` // no rung at all
}

// Refused is a rung that would have been better, and why it was not to be had.
type Refused struct {
	Rung string `json:"rung"`
	Why  string `json:"why"`
}

// AgentCost is what measuring took and what it lost.
type AgentCost struct {
	RSSBytes       uint64
	KernelMapBytes uint64
	CPU            time.Duration
	Lost           map[string]uint64 // by "<place>/<reason>"
	Programs       []ProgramCost
	Maps           []MapFill
}

// MapFill says how full a bounded table of the agent is.
type MapFill struct {
	Name              string
	Entries, Capacity uint64
}

// ProgramCost is what the kernel counted of one program.
type ProgramCost struct {
	Name     string
	Runs     uint64
	NSPerRun float64 // 0 where run statistics were off
}
