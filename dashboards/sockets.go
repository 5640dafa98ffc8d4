// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"slices"

	"github.com/velo-agent/velo-agent/collectors"
)

// with is by and more labels.
func with(by []string, more ...string) []string { return slices.Concat(by, more) }

// sockets is what the kernel does before and after the engine.
func sockets() board {
	return board{
		name: "sockets", title: "velo-agent: sockets and accept", perPort: true,
		description: "The accept queues, the network and the scheduler of the chosen ports.",
		rows: []row{
			{"Accept queue", acceptPanels()},
			{"Network", networkPanels()},
			{"Network namespaces", namespacePanels()},
			{"Threads and CPU", cpuPanels()},
		},
	}
}

func acceptPanels() []panel {
	return []panel{
		{
			title: "Depth, high water and limit", width: 12, height: 8, draw: lines(unit(collectors.AcceptDepth)),
			advice: "The depth is a sample at each scrape; the high water mark saw every arrival, of one listener. Where it has reached the limit, bursts are refused: raise the backlog of the application or somaxconn, whichever limit_by names.",
			targets: []target{
				{expr: shown.current(port, collectors.AcceptDepth), legend: "depth " + of},
				{expr: shown.highest(port, collectors.AcceptHighWater), legend: "high water " + of},
				{expr: shown.highest(with(port, "limit_by"), collectors.AcceptLimit), legend: "limit by {{limit_by}} " + of},
			},
		},
		{
			title: "Wait for accept", width: 12, height: 8, draw: lines(unit(collectors.AcceptWait)),
			advice: "Long waits are an accept loop that does other work between two accepts, or threads that find no CPU.",
			targets: []target{
				{expr: shown.quantile("0.5", port, collectors.AcceptWait), legend: "p50 " + of},
				{expr: shown.quantile("0.99", port, collectors.AcceptWait), legend: "p99 " + of},
			},
		},
		counted("Arrivals", collectors.AcceptArrivals, 8,
			"How fast the queue fills. Times the wait for accept it is the mean depth."),
		counted("Overflows", collectors.AcceptOverflows, 8,
			"Each is a client that waits a second or more before it tries again, which no latency of the server shows."),
		counted("No file descriptor left", collectors.AcceptEMFILE, 8,
			"The process cannot accept any more: raise its limit of open files (LimitNOFILE, ulimit -n) or find what it leaks. Empty where the rung in use does not see failed accepts."),
	}
}

func networkPanels() []panel {
	return []panel{
		counted("Retransmits", collectors.Retransmits, 8,
			"On the way to clients of the same room there should be none: look at the link, its queues and its drops."),
		counted("Resets", collectors.Resets, 8,
			"Received: clients that gave up. Sent: a server that closed with data unread, or was killed.", "direction"),
		counted("Zero windows", collectors.ZeroWindows, 8,
			"The client reads more slowly than the engine writes. Its time is in send_queue."),
		counted("Writes held by Nagle", collectors.NagleWrites, 12,
			"Set TCP_NODELAY in the server: each of these tokens waited for an acknowledgement."),
		counted("Send limited", collectors.SendLimited, 12,
			"By receive_window: the client is slow. By send_buffer: raise tcp_wmem, or the application's SO_SNDBUF. More than 100 % is several connections at once.", "by"),
	}
}

func namespacePanels() []panel {
	netns := func(title string, f collectors.Family, advice string) panel {
		return panel{
			title: title, advice: advice, width: 8, height: 7, draw: lines(rateUnit(f)),
			targets: []target{{expr: shown.total([]string{"instance", "netns"}, f), legend: "{{instance}} {{netns}}"}},
		}
	}
	return []panel{
		netns("Listen overflows", collectors.ListenOverflows, "Where no watched port has overflows, another listener of the namespace has them."),
		netns("Listen drops", collectors.ListenDrops, "More than the overflows: connection requests were dropped for want of memory, or by the SYN queue."),
		netns("UDP receive buffer errors", collectors.UDPRcvbufErrors, "A receiver of datagrams does not keep up: raise rmem_max and its SO_RCVBUF."),
	}
}

func cpuPanels() []panel {
	return []panel{
		{
			title: "Run queue wait, p99", width: 12, height: 8, draw: lines(unit(collectors.RunQueueWait)),
			advice:  "A role that waits here answers late however idle the GPU is: give it CPUs of its own, or start fewer threads.",
			targets: []target{{expr: shown.quantile("0.99", with(port, "role"), collectors.RunQueueWait), legend: "{{role}} " + of}},
		},
		counted("Run delay", collectors.RunDelay, 12,
			"Time runnable and not running, added over the threads of a role. Compare with their time on a CPU: a fifth of it is too much.", "role"),
		counted("CPU by role", collectors.ThreadCPU, 8,
			"100 % is one CPU. A role of one thread that stays there is the bottleneck.", "role"),
		counted("CPU throttled", collectors.Throttled, 8,
			"Raise the CPU limit of the container, or start fewer threads than it allows."),
		{
			title: "Threads", width: 8, height: 8, draw: lines(unit(collectors.Threads)),
			advice:  "Pools sized by the CPUs of the host in a container with few of them are the usual cause of throttling.",
			targets: []target{{expr: shown.current(with(port, "role"), collectors.Threads), legend: "{{role}} " + of}},
		},
		counted("Wake-ups", collectors.Wakeups, 12,
			"Many wake-ups for each exchange are a runtime that passes work from thread to thread.", "role"),
		counted("Pre-emptions", collectors.Preemptions, 12,
			"Threads that could go on were taken off their CPU: neighbours, or more threads than CPUs.", "role"),
	}
}

// counted draws the rate of a counter by port and more labels.
func counted(title string, f collectors.Family, width uint32, advice string, more ...string) panel {
	legend := of
	for _, label := range slices.Backward(more) {
		legend = "{{" + label + "}} " + legend
	}
	return panel{
		title: title, advice: advice, width: width, height: 8, draw: lines(rateUnit(f)),
		targets: []target{{expr: shown.total(with(port, more...), f), legend: legend}},
	}
}
