// SPDX-License-Identifier: Apache-2.0

package diagnosis

// Schema names the form of the report. It changes when a field is taken away or
// changes its meaning; fields are added without.
const Schema = "velo-agent.report.v1"

// Report is the report in the shape of its JSON (docs/report.schema.json).
// Durations are seconds. What was not measured is left out.
type Report struct {
	Schema        string         `json:"schema"`
	WindowS       float64        `json:"window_s"`
	Node          Node           `json:"node"`
	Verdict       []string       `json:"verdict"` // sentences, the most important first
	Ports         []PortReport   `json:"ports"`
	Peers         []PeerReport   `json:"peers,omitzero"`
	Streams       []StreamReport `json:"streams,omitzero"`
	Preconditions []Precondition `json:"preconditions,omitzero"`
	Findings      []Finding      `json:"findings"` // worst first
	Coverage      []Coverage     `json:"coverage"`
	Agent         AgentReport    `json:"agent"`
}

// PortReport is one watched port.
type PortReport struct {
	Port         uint16                 `json:"port"`
	Addresses    []string               `json:"addresses"`
	Process      string                 `json:"process,omitempty"`
	Engine       string                 `json:"engine,omitempty"`
	PID          int                    `json:"pid,omitempty"`
	Cgroup       string                 `json:"cgroup,omitempty"`
	NetNS        uint64                 `json:"netns,omitempty"`
	MPTCP        bool                   `json:"mptcp,omitempty"`
	Connections  *uint64                `json:"connections,omitempty"`
	Exchanges    *uint64                `json:"exchanges,omitempty"`
	ExchangesAre string                 `json:"exchanges_are,omitempty"` // "inferred"
	TTFT         *Distribution          `json:"ttft,omitempty"`
	FirstWrite   *Distribution          `json:"first_write,omitempty"`
	Gap          *Distribution          `json:"gap,omitempty"`
	Stages       map[string]StageReport `json:"stages,omitempty"`
	Accept       *AcceptReport          `json:"accept,omitempty"`
	Loss         *LossReport            `json:"loss,omitempty"`
	Sched        []RoleReport           `json:"sched,omitzero"`
}

// PeerReport is one peer of the response plane; `diagnose` of plain connections
// has none.
type PeerReport struct {
	Peer    string                 `json:"peer"`
	Plane   string                 `json:"plane"`
	Streams uint64                 `json:"streams"`
	Records uint64                 `json:"records"`
	Stages  map[string]StageReport `json:"stages,omitempty"`
}

// Distribution sums up many durations, in seconds. Quantiles come from buckets
// and are wrong by at most 1 %; Sum is exact.
type Distribution struct {
	Count uint64  `json:"count"`
	Sum   float64 `json:"sum"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// StageReport is one stage's part of TTFT and of the gaps.
type StageReport struct {
	TTFT *StageShare `json:"ttft,omitempty"`
	Gap  *StageShare `json:"gap,omitempty"`
}

// StageShare is a stage's time and its part of the whole, 0 to 1 in steps of
// 0.0001. The shares of one port add up to 1. The quantiles are left out where
// only the stage's total is known (a remainder).
type StageShare struct {
	Count uint64   `json:"count"`
	Sum   float64  `json:"sum"`
	P50   *float64 `json:"p50,omitempty"`
	P99   *float64 `json:"p99,omitempty"`
	Share float64  `json:"share"`
}

// AcceptReport is a listener's accept queue, in connections.
type AcceptReport struct {
	Depth          uint64        `json:"depth"`
	HighWater      *uint64       `json:"high_water,omitempty"`
	Limit          uint64        `json:"limit,omitempty"`
	LimitBy        string        `json:"limit_by,omitempty"` // "backlog", "somaxconn"; left out where neither is certain
	Somaxconn      uint64        `json:"somaxconn,omitempty"`
	Listeners      int           `json:"listeners,omitempty"` // where there are several
	Arrivals       *uint64       `json:"arrivals,omitempty"`
	Overflows      *uint64       `json:"overflows,omitempty"`
	Wait           *Distribution `json:"wait,omitempty"`
	WaitRung       string        `json:"wait_rung,omitempty"`
	WaitIsInterval bool          `json:"wait_is_interval,omitempty"` // wait is an upper bound
	EMFILE         *uint64       `json:"emfile,omitempty"`
}

// LossReport is what was lost or held back.
type LossReport struct {
	Retransmits         *uint64  `json:"retransmits,omitempty"`
	ResetsSent          *uint64  `json:"resets_sent,omitempty"`
	ResetsReceived      *uint64  `json:"resets_received,omitempty"`
	ZeroWindows         *uint64  `json:"zero_windows,omitempty"`
	NagleWrites         *uint64  `json:"nagle_writes,omitempty"`
	RwndLimited         *float64 `json:"rwnd_limited,omitempty"`
	SndbufLimited       *float64 `json:"sndbuf_limited,omitempty"`
	NodeListenOverflows *uint64  `json:"node_listen_overflows,omitempty"`
	NodeListenDrops     *uint64  `json:"node_listen_drops,omitempty"`
	NodeUDPRcvbufErrors *uint64  `json:"node_udp_rcvbuf_errors,omitempty"`
}

// RoleReport is the threads of one name.
type RoleReport struct {
	Role      string          `json:"role"`
	Threads   int             `json:"threads"`
	Wakeups   *uint64         `json:"wakeups,omitempty"`
	Wait      *Distribution   `json:"wait,omitempty"`
	OnCPU     *float64        `json:"on_cpu,omitempty"`
	RunDelay  *float64        `json:"run_delay,omitempty"`
	Preempted *uint64         `json:"preempted,omitempty"`
	Throttled *ThrottleReport `json:"throttled,omitempty"`
}

// ThrottleReport is what the CPU controller did.
type ThrottleReport struct {
	Periods          uint64  `json:"periods"`
	ThrottledPeriods uint64  `json:"throttled_periods"`
	Time             float64 `json:"time"`
	Quota            float64 `json:"quota,omitempty"` // CPUs
}

// StreamReport is one slow stream.
type StreamReport struct {
	ID        string             `json:"id"`
	Port      uint16             `json:"port,omitempty"`
	NetNS     uint64             `json:"netns,omitempty"`
	TTFT      float64            `json:"ttft,omitempty"`
	WorstGap  float64            `json:"worst_gap,omitempty"`
	Stages    map[string]float64 `json:"stages,omitempty"`     // of its TTFT
	GapStages map[string]float64 `json:"gap_stages,omitempty"` // of its worst gap
}

// AgentReport is what measuring took and lost.
type AgentReport struct {
	RSSBytes       uint64            `json:"rss_bytes"`
	KernelMapBytes uint64            `json:"kernel_map_bytes"`
	CPUSeconds     float64           `json:"cpu_seconds"`
	Lost           map[string]uint64 `json:"lost"`
	Programs       []ProgramReport   `json:"programs,omitempty"`
}

// ProgramReport is the cost of one probe program.
type ProgramReport struct {
	Name     string  `json:"name"`
	Runs     uint64  `json:"runs"`
	NSPerRun float64 `json:"ns_per_run,omitempty"`
}

// The severities of a finding, worst first.
const (
	Critical = "critical"
	Warning  = "warning"
	Notice   = "notice"
)

// Finding is a named diagnosis.
type Finding struct {
	ID       string   `json:"id"`
	Severity string   `json:"severity"`
	Port     uint16   `json:"port,omitempty"`  // left out where it is about the node
	NetNS    uint64   `json:"netns,omitempty"` // of the port, or what it is about where there is none
	Title    string   `json:"title"`
	Share    *float64 `json:"share,omitempty"` // of TTFT or gap time, where it is about a stage
	Evidence []string `json:"evidence"`
	Remedy   string   `json:"remedy"`
	Docs     string   `json:"docs"` // page of this repository
}

// ExitCode is what `diagnose` ends with: 1 where a finding is a warning or worse,
// otherwise 0 (docs/exit-codes.md).
func ExitCode(r *Report) int {
	for _, f := range r.Findings {
		if f.Severity == Critical || f.Severity == Warning {
			return 1
		}
	}
	return 0
}
