// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/units"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/collectors/velo"
)

// The families that more than one panel or rule reads.
var (
	liveSlots       = velo.Of("velo_streaming_mux_live_slots")
	recordsSent     = velo.Of("velo_streaming_mux_records_sent_total")
	perBatch        = velo.Of("velo_streaming_mux_records_per_batch")
	queueWait       = velo.Of("velo_transport_egress_queue_wait_seconds")
	rejections      = velo.Of("velo_transport_rejections_total")
	malformed       = velo.Of("velo_agent_plane_malformed_batches_total")
	creditExhausted = velo.Of("velo_streaming_slot_credit_exhausted_total")
	epochDeaths     = velo.Of("velo_streaming_mux_epoch_deaths_total")
	watchdogFirings = velo.Of("velo_streaming_heartbeat_watchdog_firings_total")
	readerStall     = velo.Of("velo_streaming_mux_reader_stall_total")
	creditLost      = velo.Of("velo_streaming_mux_credit_lost_total")
	unclaimedBinds  = velo.Of("velo_streaming_unclaimed_bind_reaped_total")
	anchorOps       = velo.Of("velo_streaming_anchor_operations_total")
)

var perNode = []string{"instance"}

// plane is the nodes of the response plane, Rust ones too.
func plane() board {
	return board{
		name: "plane", title: "velo-agent: the response plane", nodes: values("instance", scope{}.series(liveSlots)),
		description: "The streams between workers and frontends: how many, how fast, what waits, what was lost.",
		rows: []row{
			{"Streams", planeStreams()},
			{"Records and batches", planeRecords()},
			{"Waiting", planeWaiting()},
			{"Losses", planeLosses()},
			{"Connections", planeConnections()},
			{"Messages", planeMessages()},
			{"Streams with a connection of their own", planeOwnConnections()},
		},
	}
}

func planeStreams() []panel {
	operation := with(perNode, "operation", "outcome")
	return []panel{
		levels("Live streams", 8, "Slots are streams over the mux, of both directions; anchors are those that this node waits for or reads. Both must return to 0 when the traffic ends.",
			liveSlots, velo.Of("velo_streaming_active_anchors")),
		{
			title: "Streams begun", width: 8, height: 8, draw: lines(units.CountsPerSecond),
			advice:  "Counted by the worker, when it opens its slot. Compare with the requests of the frontends: each should bring one.",
			targets: []target{{expr: shown.total(perNode, recordsSent, is("record_type", "open_slot")), legend: "{{instance}}"}},
		},
		events("Unclaimed binds", 8, "Requests whose worker never began to answer: tickets that were thrown away, or workers that died with the request.", unclaimedBinds),
		{
			title: "Anchor operations", width: 8, height: 8, draw: lines(units.CountsPerSecond),
			advice:  "open is the worker's attach, attach the frontend's answer; a stream that came with a ticket has neither. error: the anchor was gone, or taken.",
			targets: []target{{expr: shown.total(operation, anchorOps), legend: "{{instance}} {{operation}} {{outcome}}"}},
		},
		quantilesOf("Attach round trip", 8, velo.Of("velo_streaming_anchor_attach_rtt_seconds"), "outcome",
			"What a stream pays before its first record. Hand out tickets with the requests, and it pays nothing."),
		quantilesOf("Duration of anchor operations", 8, velo.Of("velo_streaming_anchor_operation_duration_seconds"), "operation",
			"Of the frontend's own ones microseconds; open is a round trip."),
	}
}

func planeRecords() []panel {
	direction := with(perNode, "direction")
	sum, count := shown.total(direction, sumOf(perBatch)), shown.total(direction, countOf(perBatch))
	return []panel{
		own("Records sent", recordsSent, 8, "By type. data and its slots are the worker's; credit_update is what a frontend gives back, once for many records.", "record_type"),
		{
			title: "Records received", width: 8, height: 8, draw: lines(units.CountsPerSecond),
			advice:  "Of all types. What is sent and not received is on the way, or was lost with a connection.",
			targets: []target{{expr: shown.total(perNode, sumOf(perBatch), is("direction", "received")), legend: "{{instance}}"}},
		},
		own("Batches", velo.Of("velo_streaming_mux_batches_total"), 8, "Each sent one is a write, or a part of one. Their number, not that of records, is what the CPU pays for.", "direction"),
		{
			title: "Records per batch", width: 8, height: 8, draw: lines(units.Short),
			advice:  "The mean. Near 1 under load each record pays for a write of its own: let the first wait for company (plane.linger).",
			targets: []target{{expr: ratio(sum, count), legend: "{{instance}} {{direction}}"}},
		},
		own("Wake-ups of connections", velo.Of("velo_streaming_mux_batcher_wakes_total"), 8, "What there was to write: frame data, open new streams, control credit and closes, linger what had waited for company.", "source"),
		events("Credit visits", 8, "Slots that were looked at to return credit. Far below the records received it is returned for many at once, as it should be.", velo.Of("velo_streaming_mux_drain_visits_total")),
	}
}

func planeWaiting() []panel {
	return []panel{
		quantilesOf("Wait for the connection", 8, queueWait, "transport",
			"The latency that the plane adds. Above some milliseconds the peer, or the network to it, does not keep up: see the write duration."),
		quantilesOf("Write duration", 8, velo.Of("velo_transport_write_duration_seconds"), "transport",
			"Long writes are a peer whose socket buffer is full: it does not read, or net.core.rmem_max is too small for the round trip."),
		levels("Records that wait", 8, "Staged for a connection: much for long, the peer cannot be reached or does not read. Held for an earlier record: 0 on connections that keep order.",
			velo.Of("velo_streaming_mux_staged_records"), velo.Of("velo_streaming_mux_held_records")),
		events("Workers that waited", 8, "Out of credit: consumers do not keep up, or plane.window is too small for the round trip. Waits beyond that: the connection was full.",
			creditExhausted, velo.Of("velo_streaming_producer_send_backpressure_total")),
		{
			title: "Records without credit", width: 8, height: 8, draw: lines(units.PercentUnit),
			advice:  "Spells without credit, for each data record that was sent. Above 1 % for long the consumers are the bottleneck.",
			targets: []target{{expr: ratio(shown.total(perNode, creditExhausted), shown.total(perNode, recordsSent, is("record_type", "data"))), legend: "{{instance}}"}},
		},
		own("Messages that waited", velo.Of("velo_transport_send_backpressure_total"), 8, "Requests and answers, not streams, that found 256 frames before them.", "transport"),
	}
}

func planeLosses() []panel {
	reasons := own("Rejected frames", rejections, 8, "decode_error, route_failed, malformed: somebody speaks another protocol, or too many connections say nothing. send_error and drain_rejected come with the end of a node.", "transport", "reason")
	reasons.targets = append(reasons.targets, target{expr: shown.total(perNode, malformed), legend: "{{instance}} malformed batches"})
	dropped := own("Records dropped", velo.Of("velo_streaming_mux_records_dropped_total"), 8, "After a cancel some closed_slot are usual. The others are what a lost connection leaves behind, or a peer that breaks the rules. None of them reached another stream.", "reason")
	dropped.targets = append(dropped.targets, target{expr: shown.total(perNode, velo.Of("velo_streaming_mux_generation_mismatch_total")), legend: "{{instance}} generation mismatches"})
	return []panel{
		events("Streams lost", 8, "An epoch death is a connection that was lost with the streams sent over it, also by the planned end of a peer. A watchdog firing is a stream that was given up. A gap is a batch that never came.",
			epochDeaths, watchdogFirings, velo.Of("velo_streaming_mux_batch_seq_gaps_total")),
		dropped,
		reasons,
		events("Rules broken by peers", 8, "Slots that overspent their credit or sent after their end, and opens that nobody offered. A peer is broken, or hostile.",
			velo.Of("velo_streaming_mux_hold_overflow_total"), velo.Of("velo_streaming_mux_control_refused_total")),
		events("Must stay 0", 8, "Anything else is a defect of the plane: please report it with the node's log.", readerStall, creditLost),
		events("Credit given again", 8, "It was on its way when a connection was lost.", velo.Of("velo_streaming_mux_credit_reposted_total")),
	}
}

func planeConnections() []panel {
	outbound := is("direction", "outbound")
	kind := with(perNode, "transport", "message_type")
	frames := velo.Of("velo_transport_frames_total")
	return []panel{
		levels("Peers and connections", 8, "Connections are those that this node dialled: one to each peer that it sends to.",
			velo.Of("velo_transport_registered_peers"), velo.Of("velo_transport_active_connections")),
		own("Frames", frames, 8, "A batch is a frame of type message, a call one of message and one of response.", "direction", "message_type"),
		{
			title: "Frame bytes", width: 8, height: 8, draw: lines(units.BytesPerSecondIEC),
			advice: "Headers and payload. Near the network's rate the wait for the connection grows.",
			targets: []target{{
				expr:   shown.total(with(perNode, "transport", "direction"), velo.Of("velo_transport_frame_bytes_total")),
				legend: "{{instance}} {{transport}} {{direction}}",
			}},
		},
		{
			title: "Frames given and written", width: 24, height: 8, draw: lines(units.CountsPerSecond),
			advice: "Given above written for long is a queue that grows.",
			targets: []target{
				{expr: shown.total(kind, frames, outbound), legend: "given {{instance}} {{transport}} {{message_type}}"},
				{expr: shown.total(kind, velo.Of("velo_transport_frames_written_total")), legend: "written {{instance}} {{transport}} {{message_type}}"},
			},
		},
	}
}

func planeMessages() []panel {
	handler := with(perNode, "handler")
	request, response := velo.Of("velo_messenger_handler_request_bytes_total"), velo.Of("velo_messenger_handler_response_bytes_total")
	return []panel{
		own("Requests", velo.Of("velo_messenger_handler_requests_total"), 8, "Of the application's handlers; the plane's own are not shown.", "handler", "outcome"),
		quantilesOf("Handler duration", 8, velo.Of("velo_messenger_handler_duration_seconds"), "handler",
			"A handler that is slow keeps its place among those that may run at once."),
		{
			title: "Bytes of messages", width: 8, height: 8, draw: lines(units.BytesPerSecondIEC),
			advice: "Large payloads share the connection with the streams, and delay them.",
			targets: []target{
				{expr: shown.total(handler, request), legend: "requests {{instance}} {{handler}}"},
				{expr: shown.total(handler, response), legend: "responses {{instance}} {{handler}}"},
			},
		},
		levels("Under way", 8, "Handlers that run, and callers that wait for an answer. What grows without end is a peer that does not answer.",
			velo.Of("velo_messenger_handler_in_flight"), velo.Of("velo_messenger_pending_responses")),
		own("Dispatch failures", velo.Of("velo_messenger_dispatch_failures_total"), 8, "unknown_handler: a peer of another version, or an application that has not registered yet.", "stage", "reason"),
		own("Peers found", velo.Of("velo_messenger_client_resolution_total"), 8, "How calls found their peer. Errors of discovery: the file is not there, or does not have it.", "path", "outcome"),
		events("Messages taken from the queue", 12, "Below the inbound message frames for long, handlers do not keep up.", velo.Of("velo_messenger_inbound_dequeued_total")),
		events("No place for a response", 12, "Calls that failed at once, because too many wait for answers.", velo.Of("velo_messenger_response_slot_exhausted_total")),
	}
}

func planeOwnConnections() []panel {
	return []panel{
		events("Frames and writes", 8, "Of workers without the mux: each stream pays for a socket. A worker of velo 0.12 or later needs none.",
			velo.Of("velo_streaming_frames_written_total"), velo.Of("velo_streaming_egress_flushes_total")),
		events("Slow consumers", 8, "Reads that waited, as the stream's buffer was full.", velo.Of("velo_streaming_server_pump_backpressure_total")),
		events("Records staged for rendezvous", 8, "Of Rust nodes alone; a Go node sends large records inline.", velo.Of("velo_streaming_mux_rendezvous_singletons_total")),
	}
}

// events draws the rates of counters by node.
func events(title string, width uint32, advice string, list ...collectors.Family) panel {
	p := panel{title: title, advice: advice, width: width, height: 8, draw: lines(units.CountsPerSecond)}
	for _, f := range list {
		p.targets = append(p.targets, target{expr: shown.total(perNode, f), legend: "{{instance}} " + short(f)})
	}
	return p
}

// levels draws gauges by node.
func levels(title string, width uint32, advice string, list ...collectors.Family) panel {
	p := panel{title: title, advice: advice, width: width, height: 8, draw: lines(units.Short)}
	for _, f := range list {
		p.targets = append(p.targets, target{expr: shown.current(perNode, f), legend: "{{instance}} " + short(f)})
	}
	return p
}

// quantilesOf draws p50 and p99 of a histogram by node and a label.
func quantilesOf(title string, width uint32, f collectors.Family, label, advice string) panel {
	p := panel{title: title, advice: advice, width: width, height: 8, draw: lines(unit(f))}
	for _, q := range []string{"0.5", "0.99"} {
		p.targets = append(p.targets, target{expr: shown.quantile(q, with(perNode, label), f), legend: percent(q) + " {{instance}} {{" + label + "}}"})
	}
	return p
}

// short is what a legend calls a family.
func short(f collectors.Family) string {
	name := strings.TrimSuffix(f.Name, "_total")
	for _, prefix := range []string{"velo_streaming_mux_", "velo_streaming_", "velo_transport_", "velo_messenger_"} {
		name = strings.TrimPrefix(name, prefix)
	}
	return strings.ReplaceAll(name, "_", " ")
}
