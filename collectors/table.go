// SPDX-License-Identifier: Apache-2.0

package collectors

// Type is a Prometheus metric type.
type Type string

// The types that the table uses.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Family is one row of the table: everything that is known of a metric family, in
// one place. Collectors, the docs page, dashboards and alert tests read it.
type Family struct {
	Name   string
	Type   Type
	Unit   string   // "seconds", "bytes", "" for a plain count
	Labels []string // in order
	Budget int      // most series (of a histogram: most label sets); beyond it they fold
	Help   string
	Source string // the hook or file that it comes from
	Docs   string // page of docs/, with an anchor where there is one
}

// perPort are the labels of a watched port. netns is "" for the agent's own network
// namespace; container, pod and model are "" where they are not known.
var perPort = []string{"port", "netns", "process", "container", "pod", "model"}

func portLabels(more ...string) []string { return append(append([]string{}, perPort...), more...) }

// Ports is how many label sets one per-port family may have: the watched ports, and
// one for those beyond the budget, port="other".
const Ports = 128

const (
	stagesOfTTFT = 7
	stagesOfGap  = 2
	rolesInAll   = 64        // that the kernel's programs count
	rolesOfPorts = Ports * 4 // that /proc tells of
)

// The families. A name in Go is the metric's without velo_agent_ and its unit.
var (
	Exchanges = Family{
		Name: "velo_agent_exchanges_total", Type: Counter, Labels: perPort, Budget: Ports,
		Help:   "Requests that were answered, inferred: inbound bytes that are read after outbound ones begin one.",
		Source: "bpf/sockqueue: tcp_sendmsg_locked, sock_send_length", Docs: "how-it-works.md",
	}
	Connections = Family{
		Name: "velo_agent_connections_total", Type: Counter, Labels: perPort, Budget: Ports,
		Help:   "Connections to the port: accepted, or found when the agent came.",
		Source: "bpf/accept: inet_sock_set_state; iter/tcp", Docs: "how-it-works.md",
	}
	TTFT = Family{
		Name: "velo_agent_ttft_seconds", Type: Histogram, Unit: "seconds", Labels: perPort, Budget: Ports,
		Help:   "Time to first token: from the arrival of a request's last byte until the first content has left the host.",
		Source: "bpf/sockqueue", Docs: "how-it-works.md",
	}
	FirstWrite = Family{
		Name: "velo_agent_first_write_seconds", Type: Histogram, Unit: "seconds", Labels: perPort, Budget: Ports,
		Help:   "From the arrival of a request's last byte until the first response write, headers included, has left the host.",
		Source: "bpf/sockqueue", Docs: "how-it-works.md",
	}
	Gap = Family{
		Name: "velo_agent_gap_seconds", Type: Histogram, Unit: "seconds", Labels: perPort, Budget: Ports,
		Help:   "Time between two successive records (response writes with content) of a stream leaving the host.",
		Source: "bpf/sockqueue", Docs: "how-it-works.md",
	}
	TTFTStage = Family{
		Name: "velo_agent_ttft_stage_seconds", Type: Histogram, Unit: "seconds", Labels: portLabels("stage"), Budget: Ports * stagesOfTTFT,
		Help:   "The part of TTFT that a stage took. The sums of all stages of a port add up to the sum of velo_agent_ttft_seconds.",
		Source: "bpf/sockqueue, bpf/accept, bpf/sched", Docs: "index.md",
	}
	GapStage = Family{
		Name: "velo_agent_gap_stage_seconds", Type: Histogram, Unit: "seconds", Labels: portLabels("stage"), Budget: Ports * stagesOfGap,
		Help:   "The part of a gap that a stage took. The sums of both stages of a port add up to the sum of velo_agent_gap_seconds.",
		Source: "bpf/sockqueue", Docs: "index.md",
	}
	ObjectiveMissed = Family{
		Name: "velo_agent_objective_missed_total", Type: Counter, Labels: portLabels("objective", "stage"), Budget: Ports * (stagesOfTTFT + stagesOfGap),
		Help:   "Exchanges that missed an objective (objective=\"ttft\": their TTFT; \"gap\": one of their gaps, counted once), by the stage that took most of it. Divide by velo_agent_exchanges_total.",
		Source: "bpf/sockqueue", Docs: "metrics.md#objectives",
	}
	Objective = Family{
		Name: "velo_agent_objective_seconds", Type: Gauge, Unit: "seconds", Labels: []string{"objective"}, Budget: 2,
		Help:   "The objectives of the configuration.",
		Source: "configuration: objectives", Docs: "metrics.md#objectives",
	}

	AcceptDepth = Family{
		Name: "velo_agent_accept_queue_depth", Type: Gauge, Labels: perPort, Budget: Ports,
		Help:   "Connections that wait to be accepted, all listeners of the port.",
		Source: "iter/bpf_sk_storage_map: sk_ack_backlog", Docs: "accept/depth.md",
	}
	AcceptHighWater = Family{
		Name: "velo_agent_accept_queue_high_water", Type: Gauge, Labels: perPort, Budget: Ports,
		Help:   "The deepest accept queue at any arrival since the agent began, of one listener.",
		Source: "bpf/sockqueue: sk_data_ready of the listener", Docs: "accept/high_water.md",
	}
	AcceptLimit = Family{
		Name: "velo_agent_accept_queue_limit", Type: Gauge, Labels: portLabels("limit_by"), Budget: Ports,
		Help:   "The most connections that may wait, all listeners of the port; limit_by says what binds: the application's backlog or somaxconn.",
		Source: "iter/bpf_sk_storage_map: sk_max_ack_backlog; /proc/sys/net/core/somaxconn", Docs: "accept/limit.md",
	}
	AcceptArrivals = Family{
		Name: "velo_agent_accept_arrivals_total", Type: Counter, Labels: perPort, Budget: Ports,
		Help:   "Connections that entered the accept queue.",
		Source: "bpf/sockqueue: sk_data_ready of the listener", Docs: "accept/depth.md",
	}
	AcceptOverflows = Family{
		Name: "velo_agent_accept_overflows_total", Type: Counter, Labels: perPort, Budget: Ports,
		Help:   "Connections that the listener refused because its queue was full.",
		Source: "iter/bpf_sk_storage_map: sk_drops; bpf/accept: inet_sock_set_state of listeners that close", Docs: "accept/overflows.md",
	}
	AcceptWait = Family{
		Name: "velo_agent_accept_wait_seconds", Type: Histogram, Unit: "seconds", Labels: perPort, Budget: Ports,
		Help:   "From a connection's ESTABLISHED to its accept.",
		Source: "bpf/accept", Docs: "accept/wait.md",
	}
	AcceptEMFILE = Family{
		Name: "velo_agent_accept_emfile_total", Type: Counter, Labels: perPort, Budget: Ports,
		Help:   "Accepts that failed because the process had no file descriptor left.",
		Source: "bpf/accept: sys_exit", Docs: "accept/emfile.md",
	}

	RunQueueWait = Family{
		Name: "velo_agent_runqueue_wait_seconds", Type: Histogram, Unit: "seconds", Labels: portLabels("role"), Budget: rolesInAll,
		Help:   "From the wake-up (or pre-emption) of a thread of the port's process until it runs, by thread role.",
		Source: "bpf/sched: sched_waking, sched_switch", Docs: "stages/wake_to_run.md",
	}
	Wakeups = Family{
		Name: "velo_agent_thread_wakeups_total", Type: Counter, Labels: portLabels("role"), Budget: rolesInAll,
		Help:   "Wake-ups of threads, by thread role.",
		Source: "bpf/sched", Docs: "stages/wake_to_run.md",
	}
	Preemptions = Family{
		Name: "velo_agent_thread_preemptions_total", Type: Counter, Labels: portLabels("role"), Budget: rolesInAll,
		Help:   "Times that a thread was taken off the CPU while it could go on, by thread role.",
		Source: "bpf/sched", Docs: "stages/wake_to_run.md",
	}
	ThreadCPU = Family{
		Name: "velo_agent_thread_cpu_seconds_total", Type: Counter, Unit: "seconds", Labels: portLabels("role"), Budget: rolesOfPorts,
		Help:   "Time on a CPU, by thread role.",
		Source: "/proc/PID/task/*/schedstat", Docs: "stages/wake_to_run.md",
	}
	RunDelay = Family{
		Name: "velo_agent_thread_run_delay_seconds_total", Type: Counter, Unit: "seconds", Labels: portLabels("role"), Budget: rolesOfPorts,
		Help:   "Time that threads could run and did not, by thread role.",
		Source: "/proc/PID/task/*/schedstat", Docs: "stages/wake_to_run.md",
	}
	Threads = Family{
		Name: "velo_agent_threads", Type: Gauge, Labels: portLabels("role"), Budget: rolesOfPorts,
		Help:   "Threads of the port's process, by thread role.",
		Source: "/proc/PID/task", Docs: "stages/wake_to_run.md",
	}
	Throttled = Family{
		Name: "velo_agent_cpu_throttled_seconds_total", Type: Counter, Unit: "seconds", Labels: perPort, Budget: Ports,
		Help:   "Time that the CPU controller held back the cgroup of the port's process.",
		Source: "cpu.stat", Docs: "findings.md#cpu_throttled",
	}

	Retransmits = Family{
		Name: "velo_agent_retransmits_total", Type: Counter, Labels: perPort, Budget: Ports,
		Help:   "TCP segments sent again on the port's connections.",
		Source: "bpf/netloss: tcp_retransmit_skb", Docs: "findings.md#retransmits",
	}
	Resets = Family{
		Name: "velo_agent_resets_total", Type: Counter, Labels: portLabels("direction"), Budget: Ports * 2,
		Help:   "TCP resets on the port's connections, direction sent or received.",
		Source: "bpf/netloss: tcp_send_reset, tcp_receive_reset", Docs: "findings.md#resets",
	}
	ZeroWindows = Family{
		Name: "velo_agent_zero_windows_total", Type: Counter, Labels: perPort, Budget: Ports,
		Help:   "Sends that returned with the client's receive window closed.",
		Source: "bpf/sockqueue: sock_send_length", Docs: "findings.md#send_queue",
	}
	NagleWrites = Family{
		Name: "velo_agent_nagle_writes_total", Type: Counter, Labels: perPort, Budget: Ports,
		Help:   "Writes that Nagle's algorithm held until an acknowledgement came.",
		Source: "bpf/sockqueue: sock_send_length", Docs: "findings.md#send_queue",
	}
	SendLimited = Family{
		Name: "velo_agent_send_limited_seconds_total", Type: Counter, Unit: "seconds", Labels: portLabels("by"), Budget: Ports * 2,
		Help:   "Time that connections were held back, by the client's receive_window or by the server's own send_buffer; added over connections.",
		Source: "iter/bpf_sk_storage_map: chrono_stat; bpf/accept: inet_sock_set_state of connections that close", Docs: "findings.md#send_queue",
	}
	ListenOverflows = Family{
		Name: "velo_agent_netns_listen_overflows_total", Type: Counter, Labels: []string{"netns"}, Budget: Ports,
		Help:   "Connections refused by full accept queues, of the whole network namespace.",
		Source: "/proc/PID/net/netstat: ListenOverflows", Docs: "accept/overflows.md",
	}
	ListenDrops = Family{
		Name: "velo_agent_netns_listen_drops_total", Type: Counter, Labels: []string{"netns"}, Budget: Ports,
		Help:   "Connection requests that were dropped, for any reason, of the whole network namespace.",
		Source: "/proc/PID/net/netstat: ListenDrops", Docs: "accept/overflows.md",
	}
	UDPRcvbufErrors = Family{
		Name: "velo_agent_netns_udp_rcvbuf_errors_total", Type: Counter, Labels: []string{"netns"}, Budget: Ports,
		Help:   "UDP datagrams dropped because a receive buffer was full, of the whole network namespace.",
		Source: "/proc/PID/net/snmp: RcvbufErrors", Docs: "findings.md",
	}

	Findings = Family{
		Name: "velo_agent_findings", Type: Gauge, Labels: []string{"id", "severity", "port", "netns"}, Budget: Ports * 8,
		Help:   "1 for each finding of the last minute; see the report for its evidence and remedy.",
		Source: "diagnosis", Docs: "findings.md",
	}

	SignalRung = Family{
		Name: "velo_agent_signal_rung", Type: Gauge, Labels: []string{"signal", "rung"}, Budget: 64,
		Help:   "1 for the rung by which a signal is obtained; rung=\"none\" where it could not be had.",
		Source: "bpf/ladder", Docs: "probes.md",
	}
	SignalRefused = Family{
		Name: "velo_agent_signal_refused", Type: Gauge, Labels: []string{"signal", "rung", "reason"}, Budget: 128,
		Help:   "1 for each better rung that could not be had, and why.",
		Source: "bpf/ladder", Docs: "probes.md",
	}
	ProgramRuns = Family{
		Name: "velo_agent_program_runs_total", Type: Counter, Labels: []string{"program"}, Budget: 64,
		Help:   "Runs of a BPF program that the kernel counted: it is asked to for one second in sixty.",
		Source: "BPF_ENABLE_STATS", Docs: "probes.md#what-a-run-costs",
	}
	ProgramSeconds = Family{
		Name: "velo_agent_program_seconds_total", Type: Counter, Unit: "seconds", Labels: []string{"program"}, Budget: 64,
		Help:   "Time of the runs in velo_agent_program_runs_total.",
		Source: "BPF_ENABLE_STATS", Docs: "probes.md#what-a-run-costs",
	}
	MapEntries = Family{
		Name: "velo_agent_map_entries", Type: Gauge, Labels: []string{"map"}, Budget: 32,
		Help:   "Entries in use of a table of the agent that is bounded.",
		Source: "bpf, agent", Docs: "how-it-works.md#nothing-is-lost-silently",
	}
	MapCapacity = Family{
		Name: "velo_agent_map_capacity", Type: Gauge, Labels: []string{"map"}, Budget: 32,
		Help:   "The most entries that the table takes.",
		Source: "bpf, agent", Docs: "how-it-works.md#nothing-is-lost-silently",
	}
	Lost = Family{
		Name: "velo_agent_lost_total", Type: Counter, Labels: []string{"place", "reason"}, Budget: 32,
		Help:   "What the agent lost, by place and reason.",
		Source: "bpf, agent", Docs: "how-it-works.md#nothing-is-lost-silently",
	}
	Memory = Family{
		Name: "velo_agent_memory_bytes", Type: Gauge, Unit: "bytes", Labels: []string{"part"}, Budget: 3,
		Help:   "Memory of the agent: part daemon and helper (resident), kernel_maps.",
		Source: "/proc/self/statm, bpf", Docs: "daemon.md",
	}
	CPU = Family{
		Name: "velo_agent_cpu_seconds_total", Type: Counter, Unit: "seconds", Labels: []string{"part"}, Budget: 2,
		Help:   "CPU time of the agent's processes: part daemon and helper. What its programs take in the kernel is not in it.",
		Source: "getrusage", Docs: "daemon.md",
	}
	FoldedSeries = Family{
		Name: "velo_agent_folded_series", Type: Gauge, Labels: []string{"family"}, Budget: 64,
		Help:   "Label sets of a family that found no room within its budget at the last scrape and were added to its overflow series.",
		Source: "collectors", Docs: "metrics.md#budgets",
	}
	FoldedPorts = Family{
		Name: "velo_agent_folded_ports_total", Type: Counter, Budget: 1,
		Help:   "Listening ports that found no room among the watched ones and are counted as port=\"other\".",
		Source: "agent", Docs: "metrics.md#budgets",
	}
	WatchedPorts = Family{
		Name: "velo_agent_watched_ports", Type: Gauge, Budget: 1,
		Help:   "Listening ports that are watched.",
		Source: "agent", Docs: "daemon.md",
	}
	HelperUp = Family{
		Name: "velo_agent_helper_up", Type: Gauge, Budget: 1,
		Help:   "1 while the helper with the rights serves; 0 when it is gone, and the probes with it.",
		Source: "privileged", Docs: "rights.md",
	}
	RecordSnapshots = Family{
		Name: "velo_agent_record_snapshots", Type: Gauge, Budget: 1,
		Help:   "Snapshots in the record.",
		Source: "record", Docs: "record.md",
	}
	RecordBytes = Family{
		Name: "velo_agent_record_bytes", Type: Gauge, Unit: "bytes", Budget: 1,
		Help:   "Size of the record on disk.",
		Source: "record", Docs: "record.md",
	}
	RecordOldest = Family{
		Name: "velo_agent_record_oldest_timestamp_seconds", Type: Gauge, Unit: "seconds", Budget: 1,
		Help:   "When the oldest snapshot of the record was taken.",
		Source: "record", Docs: "record.md",
	}
	RecordFailures = Family{
		Name: "velo_agent_record_failures_total", Type: Counter, Labels: []string{"reason"}, Budget: 8,
		Help:   "Snapshots that could not be written or read back, by reason: disk_full, too_large, write, open, damaged.",
		Source: "record", Docs: "record.md",
	}
	Reloads = Family{
		Name: "velo_agent_config_reloads_total", Type: Counter, Labels: []string{"result"}, Budget: 2,
		Help:   "Reloads of the configuration, result ok or refused.",
		Source: "config", Docs: "configuration.md",
	}
	ConfigLoaded = Family{
		Name: "velo_agent_config_loaded_timestamp_seconds", Type: Gauge, Unit: "seconds", Budget: 1,
		Help:   "When the configuration in force was loaded.",
		Source: "config", Docs: "configuration.md",
	}
	BuildInfo = Family{
		Name: "velo_agent_build_info", Type: Gauge, Labels: []string{"version", "revision", "go_version"}, Budget: 1,
		Help:   "1; the labels say which build this is.",
		Source: "debug.ReadBuildInfo", Docs: "daemon.md",
	}
)

// Table is every family, in the order of the docs page.
var Table = []*Family{
	&Exchanges, &Connections, &TTFT, &FirstWrite, &Gap, &TTFTStage, &GapStage, &ObjectiveMissed, &Objective,
	&AcceptDepth, &AcceptHighWater, &AcceptLimit, &AcceptArrivals, &AcceptOverflows, &AcceptWait, &AcceptEMFILE,
	&RunQueueWait, &Wakeups, &Preemptions, &ThreadCPU, &RunDelay, &Threads, &Throttled,
	&Retransmits, &Resets, &ZeroWindows, &NagleWrites, &SendLimited, &ListenOverflows, &ListenDrops, &UDPRcvbufErrors,
	&Findings,
	&SignalRung, &SignalRefused, &ProgramRuns, &ProgramSeconds, &MapEntries, &MapCapacity, &Lost, &Memory, &CPU,
	&FoldedSeries, &FoldedPorts, &WatchedPorts, &HelperUp,
	&RecordSnapshots, &RecordBytes, &RecordOldest, &RecordFailures, &Reloads, &ConfigLoaded, &BuildInfo,
}
