// SPDX-License-Identifier: Apache-2.0

package velo

// Missing are families of velo that a node does not have.
type Missing struct {
	Names []string
	Why   string
}

// Absent is all of them: those of velo 0.21 without its feature of RDMA, then those of RDMA.
var Absent = []Missing{
	{
		[]string{
			"velo_messenger_ordered_lanes", "velo_messenger_ordered_lane_depth",
			"velo_messenger_ordered_lane_wait_seconds", "velo_messenger_ordered_lanes_created_total",
		},
		"Messages of a peer wait on no lane: batches are read in the order of their connection, by whoever reads it.",
	},
	{
		[]string{"velo_streaming_backpressure_total"},
		"Nothing counts into it in velo either.",
	},
	{
		[]string{"velo_streaming_reader_pump_backpressure_total"},
		"There is no pump between a stream and its consumer, who reads the slot's own buffer.",
	},
	{
		[]string{"velo_streaming_mux_withheld_records"},
		"A record without credit is not taken from its producer, who waits (velo_streaming_producer_send_backpressure_total).",
	},
	{
		[]string{
			"velo_rendezvous_operations_total", "velo_rendezvous_operation_duration_seconds",
			"velo_rendezvous_bytes_total", "velo_rendezvous_active_slots",
		},
		"This node stages nothing for others to fetch: large records travel inline. What a peer staged it pulls, as a message.",
	},
	{
		[]string{
			"velo_rdma_registered_bytes", "velo_rdma_registrations_total", "velo_rdma_live_regions",
			"velo_rendezvous_rdma_path_total", "velo_rendezvous_rdma_get_duration_seconds", "velo_rendezvous_rdma_leases_reaped_total",
		},
		"There is no RDMA.",
	},
}

// Look is what to look at, of the families that are worth it first.
var Look = map[string]string{
	"velo_streaming_mux_live_slots":                    "Streams that are open now. It must return to 0 when the traffic ends.",
	"velo_streaming_mux_records_per_batch":             "The mean is what sharing a connection is worth: near 1, each record pays for a write of its own.",
	"velo_transport_egress_queue_wait_seconds":         "The latency that the plane itself adds. p99 above a few milliseconds: the connection or its peer does not keep up.",
	"velo_transport_write_duration_seconds":            "Long writes are a peer that does not read, or a network that is full.",
	"velo_streaming_slot_credit_exhausted_total":       "Divide by the data records sent. Above 1 %: consumers do not keep up, or the window is too small for the round trip.",
	"velo_streaming_producer_send_backpressure_total":  "How often workers stood still. Without exhausted credit it is the connection that was full.",
	"velo_streaming_mux_epoch_deaths_total":            "Connections that were lost; what a worker was sending over one ended with it. A peer's planned end counts too.",
	"velo_streaming_heartbeat_watchdog_firings_total":  "Streams that were given up: their peer was silent, or records were lost on the way.",
	"velo_streaming_mux_batch_seq_gaps_total":          "0, or a peer that numbers its batches wrongly.",
	"velo_streaming_mux_records_dropped_total":         "After a cancel some closed_slot are usual. stale_epoch, generation and duplicate are what a lost connection leaves behind, unknown_slot opens that nobody offered: late ones, or a peer that makes them up.",
	"velo_streaming_mux_hold_overflow_total":           "0, or a peer that breaks the rules of the protocol.",
	"velo_streaming_mux_reader_stall_total":            "Must stay 0: else credit was given for room that there was not.",
	"velo_streaming_mux_credit_lost_total":             "Must stay 0: else a stream stands still for good.",
	"velo_streaming_unclaimed_bind_reaped_total":       "Requests whose worker never began to answer.",
	"velo_streaming_anchor_attach_rtt_seconds":         "What a stream pays before its first record where it has no ticket.",
	"velo_streaming_anchor_operations_total":           "By outcome: refused attaches are error.",
	"velo_transport_rejections_total":                  "decode_error and route_failed: somebody speaks another protocol, or is too many.",
	"velo_transport_send_backpressure_total":           "Messages, not streams, that waited for room.",
	"velo_streaming_mux_staged_records":                "Records that wait for a connection: far above 0 for long, the peer cannot be reached or does not read.",
	"velo_streaming_mux_held_records":                  "Records that came before an earlier one: 0 on connections that keep order, as these do.",
	"velo_messenger_dispatch_failures_total":           "unknown_handler: a peer of another version, or an application that is not there.",
	"velo_messenger_pending_responses":                 "Calls under way. What grows without end is a peer that does not answer.",
	"velo_messenger_response_slot_exhausted_total":     "Calls that failed at once: too many wait for answers.",
	"velo_agent_plane_malformed_batches_total":         "0, or a peer that is broken or hostile.",
	"velo_streaming_mux_drain_visits_total":            "How often credit was returned. Far below the records received: it is returned for many at once, as it should be.",
	"velo_streaming_active_anchors":                    "Streams that this node waits for or reads. What only grows is an application that does not close them.",
	"velo_streaming_mux_control_refused_total":         "A peer opens what nobody offered it, faster than it can be told so.",
	"velo_streaming_mux_credit_reposted_total":         "Credit on the way when a connection was lost; it is given again.",
	"velo_streaming_mux_generation_mismatch_total":     "Late records of a stream whose place another has by now. They reach nobody.",
	"velo_messenger_client_resolution_total":           "discovery/error and send/error: calls that did not find their peer.",
	"velo_streaming_server_pump_backpressure_total":    "Slow consumers of streams that have a connection each.",
	"velo_streaming_anchor_operation_duration_seconds": "Microseconds, but for open, which is a round trip.",
	"velo_streaming_mux_rendezvous_singletons_total":   "Of this node always 0.",
	"velo_messenger_inbound_dequeued_total":            "The message frames that came in, less this, wait for a handler.",
	"velo_transport_frames_written_total":              "The frames given to connections, less this, wait there.",
	"velo_streaming_frames_written_total":              "By egress_flushes_total: frames in a write.",
}
