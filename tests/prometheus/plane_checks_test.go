// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/collectors/velo"
)

// unforced are families of the plane that stay 0 here, and why.
var unforced = map[string]string{
	"velo_streaming_mux_reader_stall_total":          "it counts a defect: credit stands for room",
	"velo_streaming_mux_credit_lost_total":           "it counts a defect: credit that did not leave is always put back",
	"velo_streaming_mux_rendezvous_singletons_total": "a Go node stages nothing",
	"velo_messenger_response_slot_exhausted_total":   "it takes 65,535 calls at once, each with a goroutine that waits",
}

// planeSigns are label values of the plane, each forced by a cause of its own.
var planeSigns = []string{
	`velo_streaming_mux_records_dropped_total{reason="stale_epoch"}`,
	`velo_streaming_mux_records_dropped_total{reason="generation"}`,
	`velo_streaming_mux_records_dropped_total{reason="unknown_slot"}`,
	`velo_streaming_mux_records_dropped_total{reason="closed_slot"}`,
	`velo_streaming_mux_records_dropped_total{reason="slot_collision"}`,
	`velo_streaming_mux_records_dropped_total{reason="duplicate"}`,
	`velo_streaming_mux_records_dropped_total{reason="lane_mismatch"}`,
	`velo_streaming_mux_records_sent_total{record_type="data"}`,
	`velo_streaming_mux_records_sent_total{record_type="open_slot"}`,
	`velo_streaming_mux_records_sent_total{record_type="close_slot"}`,
	`velo_streaming_mux_records_sent_total{record_type="credit_update"}`,
	`velo_streaming_mux_records_sent_total{record_type="lifecycle"}`,
	`velo_streaming_mux_batcher_wakes_total{source="frame"}`,
	`velo_streaming_mux_batcher_wakes_total{source="open"}`,
	`velo_streaming_mux_batcher_wakes_total{source="control"}`,
	`velo_streaming_mux_batcher_wakes_total{source="linger"}`,
	`velo_streaming_anchor_operations_total{operation="attach",outcome="success"}`,
	`velo_streaming_anchor_operations_total{operation="attach",outcome="error"}`,
	`velo_streaming_anchor_operations_total{operation="open",outcome="success"}`,
	`velo_streaming_anchor_operations_total{operation="open",outcome="error"}`,
	`velo_messenger_dispatch_failures_total{stage="dispatch",reason="unknown_handler"}`,
	`velo_messenger_client_resolution_total{path="handshake",outcome="success"}`,
	`velo_transport_rejections_total{reason="decode_error"}`,
	`velo_transport_rejections_total{reason="send_error"}`,
	`velo_transport_frames_total{message_type="response"}`,
	`velo_transport_frames_total{message_type="ack"}`,
	`velo_transport_frames_total{message_type="shutting_down"}`,
}

// testPlane: every family of the plane moves, but for those that nothing moves.
func (s *scene) testPlane(t *testing.T, left func() time.Duration) {
	for _, f := range velo.Table() {
		t.Run(f.Name, func(t *testing.T) {
			eventually(t, left(), func() error {
				return s.classic.answers(fmt.Sprintf(`{__name__=~"%s(_count)?"}`, f.Name))
			})
			s.wantLabels(t, f)
			if why := unforced[f.Name]; why != "" {
				if err := s.classic.silent(f.Name + " > 0"); err != nil {
					t.Errorf("%v; %s", err, why)
				}
				return
			}
			moved := f.Name + " > 0"
			switch f.Type {
			case collectors.Gauge:
				moved = "max_over_time(" + f.Name + "[1m]) > 0"
			case collectors.Histogram:
				moved = f.Name + "_count > 0"
			}
			eventually(t, left(), func() error { return s.classic.answers(moved) })
		})
	}
	for _, sign := range planeSigns {
		t.Run(sign, func(t *testing.T) {
			eventually(t, left(), func() error { return s.classic.answers(sign + " > 0") })
		})
	}
	// What the daemon's node does is on the daemon's page.
	hosted := fmt.Sprintf("instance=%q", s.daemon.Listen)
	for _, expr := range []string{
		"velo_streaming_mux_live_slots{%s} == 0",
		`velo_streaming_anchor_operations_total{%s,operation="attach",outcome="error"} > 5`,
		`velo_transport_rejections_total{%s,reason="decode_error"} > 5`,
		`velo_transport_frames_total{%s,direction="inbound",message_type="message"} > 5`,
		"velo_transport_egress_queue_wait_seconds_count{%s} > 5",
	} {
		t.Run("of the daemon", func(t *testing.T) {
			eventually(t, left(), func() error { return s.classic.answers(fmt.Sprintf(expr, hosted)) })
		})
	}
}
