// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/collectors/velo"
	"github.com/velo-agent/velo-agent/dashboards"
)

// ripe is when everything has an answer: the run statistics of the programs come
// once a minute.
const ripe = 75 * time.Second

func TestPrometheus(t *testing.T) {
	s := newScene(t)
	begun := time.Now()
	left := func() time.Duration { return max(ripe-time.Since(begun), 5*time.Second) }
	t.Run("pages", s.testPages)
	t.Run("promtool", s.testPromtool)
	t.Run("exemplars", s.testExemplars)
	t.Run("api", s.testAPI)
	t.Run("families", func(t *testing.T) { s.testFamilies(t, left) })
	t.Run("plane", func(t *testing.T) { s.testPlane(t, left) })
	t.Run("queries", func(t *testing.T) { s.testQueries(t, left) })
	t.Run("rules", func(t *testing.T) { s.testRules(t, left) })
	t.Run("shares", s.testShares)
	t.Run("counters go up", s.testCounters)
	t.Run("native", s.testNative)
	t.Run("helper killed", s.testHelperKilled)
	t.Run("alerts", s.testAlerts)
}

// lacks says why an expression has no data on this machine, or is "".
func (s *scene) lacks(expr string) string {
	for name, why := range s.lacking {
		if strings.Contains(expr, name) {
			return why
		}
	}
	return ""
}

// on is the series of a port of the scene, as the undisturbed daemon has it.
func (s *scene) on(port string) string {
	return fmt.Sprintf(`{instance=%q,port="%d"}`, s.daemon.Listen, s.ports[port])
}

// signs are expressions that answer once a family's cause is on; for the others its
// mere presence is the sign. %s is the series of the port that the cause is at.
var signs = map[*collectors.Family]struct{ expr, port string }{
	&collectors.Exchanges:       {"velo_agent_exchanges_total%s > 5", "engine"},
	&collectors.Connections:     {"velo_agent_connections_total%s > 5", "accept"},
	&collectors.TTFT:            {"velo_agent_ttft_seconds_sum%[1]s / velo_agent_ttft_seconds_count%[1]s > 0.3", "engine"},
	&collectors.FirstWrite:      {"velo_agent_first_write_seconds_count%s > 5", "engine"},
	&collectors.Gap:             {"velo_agent_gap_seconds_sum%[1]s / velo_agent_gap_seconds_count%[1]s > 0.1", "engine"},
	&collectors.TTFTStage:       {`sum by (stage) (velo_agent_ttft_stage_seconds_sum%s) > 0`, "reader"},
	&collectors.GapStage:        {`sum (velo_agent_gap_stage_seconds_sum%s) > 0`, "nagle"},
	&collectors.ObjectiveMissed: {`count(velo_agent_objective_missed_total%s > 0) > 1`, "engine"},
	&collectors.AcceptDepth:     {"max_over_time(velo_agent_accept_queue_depth%s[1m]) > 3", "accept"},
	&collectors.AcceptHighWater: {"velo_agent_accept_queue_high_water%s > 3", "accept"},
	&collectors.AcceptLimit:     {"velo_agent_accept_queue_limit%s == 4", "accept"},
	&collectors.AcceptArrivals:  {"velo_agent_accept_arrivals_total%s > 10", "accept"},
	&collectors.AcceptOverflows: {"velo_agent_accept_overflows_total%s > 0", "accept"},
	&collectors.AcceptWait:      {"velo_agent_accept_wait_seconds_sum%[1]s / velo_agent_accept_wait_seconds_count%[1]s > 0.1", "accept"},
	&collectors.AcceptEMFILE:    {"velo_agent_accept_emfile_total%s > 0", "files"},
	&collectors.RunQueueWait:    {"histogram_quantile(0.99, sum by (le) (rate(velo_agent_runqueue_wait_seconds_bucket%s[1m]))) > 0.002", "starved"},
	&collectors.Wakeups:         {"sum(velo_agent_thread_wakeups_total%s) > 10", "starved"},
	&collectors.Preemptions:     {"sum(velo_agent_thread_preemptions_total%s) > 0", "throttled"},
	&collectors.ThreadCPU:       {"sum(velo_agent_thread_cpu_seconds_total%s) > 0.1", "throttled"},
	&collectors.RunDelay:        {"sum(velo_agent_thread_run_delay_seconds_total%s) > 0.1", "starved"},
	&collectors.Threads:         {"sum(velo_agent_threads%s) > 2", "starved"},
	&collectors.Throttled:       {"velo_agent_cpu_throttled_seconds_total%s > 1", "throttled"},
	&collectors.Retransmits:     {"velo_agent_retransmits_total%s > 5", "lossy"},
	&collectors.Resets:          {`sum(velo_agent_resets_total%[1]s) > 1`, "slam"},
	&collectors.ZeroWindows:     {"velo_agent_zero_windows_total%s > 0", "stalled"},
	&collectors.NagleWrites:     {"velo_agent_nagle_writes_total%s > 0", "nagle"},
	&collectors.SendLimited:     {"velo_agent_send_limited_seconds_total%s > 0", "stalled"},
	&collectors.ListenOverflows: {"velo_agent_netns_listen_overflows_total > 0", ""},
	&collectors.ListenDrops:     {"velo_agent_netns_listen_drops_total > 0", ""},
	&collectors.UDPRcvbufErrors: {"velo_agent_netns_udp_rcvbuf_errors_total > 0", ""},
	&collectors.ProgramRuns:     {"velo_agent_program_runs_total > 0", ""},
	&collectors.ProgramSeconds:  {"velo_agent_program_seconds_total > 0", ""},
	&collectors.MapEntries:      {"velo_agent_map_entries > 0", ""},
	&collectors.Lost:            {"velo_agent_lost_total > 0", ""},
	&collectors.FoldedSeries:    {"velo_agent_folded_series > 0", ""},
	&collectors.FoldedPorts:     {"velo_agent_folded_ports_total > 10", ""},
	&collectors.WatchedPorts:    {"velo_agent_watched_ports == 128", ""},
	&collectors.RecordFailures:  {`velo_agent_record_failures_total{reason="disk_full"} > 0`, ""},
	&collectors.Reloads:         {"count(velo_agent_config_reloads_total == 1) == 2", ""}, // ok and refused
}

// more are signs of label values: each is forced by a cause of its own.
var more = map[string]struct{ expr, port string }{
	"reader is guilty":       {`velo_agent_ttft_stage_seconds_sum%s{stage=~"reader|runtime_handoff"} > 0`, "reader"},
	"starved thread":         {`velo_agent_ttft_stage_seconds_sum%s{stage="wake_to_run"} > 0`, "starved"},
	"accept wait is a stage": {`velo_agent_ttft_stage_seconds_sum%s{stage="accept_wait"} > 0`, "accept"},
	"send queue of a gap":    {`velo_agent_gap_stage_seconds_sum%s{stage="send_queue"} > 0`, "nagle"},
	"reset by the server":    {`velo_agent_resets_total%s{direction="sent"} > 0`, "slam"},
	"reset by the client":    {`velo_agent_resets_total%s{direction="received"} > 0`, "hang-up"},
	"limited by the window":  {`velo_agent_send_limited_seconds_total%s{by="receive_window"} > 0`, "stalled"},
	// That it is above 0 cannot be forced: the kernel counts it only where the send that
	// fills the buffer also empties the queue, which loopback was never seen to do.
	"limited by the buffer":     {`velo_agent_send_limited_seconds_total%s{by="send_buffer"}`, "lossy"},
	"objective of gaps":         {`velo_agent_objective_missed_total%s{objective="gap",stage="engine"} > 0`, "engine"},
	"backlog binds":             {`velo_agent_accept_queue_limit%s{limit_by="backlog"}`, "accept"},
	"somaxconn binds":           {`velo_agent_accept_queue_limit%s{limit_by="somaxconn"}`, "engine"},
	"model":                     {`velo_agent_exchanges_total%s{model="` + model + `"}`, "starved"},
	"another namespace":         {`velo_agent_exchanges_total{netns!=""}`, ""},
	"ports beyond the budget":   {`velo_agent_connections_total{port="other"}`, ""},
	"writes beyond the room":    {`velo_agent_lost_total{place="writes",reason="queue_full"} > 0`, ""},
	"series beyond the budget":  {`velo_agent_threads{port="other",role="other"}`, ""},
	"unexplained without sched": {`velo_agent_ttft_stage_seconds_sum{stage="unexplained"} > 0`, ""},
}

// fill puts the series of a port into a sign.
func (s *scene) fill(expr, port string) string {
	if port == "" {
		return expr
	}
	expr = fmt.Sprintf(expr, s.on(port))
	return strings.ReplaceAll(expr, "}{", ",") // more matchers
}

func (s *scene) testFamilies(t *testing.T, left func() time.Duration) {
	for _, f := range collectors.Table {
		t.Run(f.Name, func(t *testing.T) {
			if why := s.lacks(f.Name); why != "" {
				t.Logf("its cause cannot be made here: %s", why)
				return
			}
			eventually(t, left(), func() error {
				return s.classic.answers(fmt.Sprintf(`count({__name__=~"%s(_bucket|_count)?"}) > 0`, f.Name))
			})
			if sign, ok := signs[f]; ok {
				eventually(t, left(), func() error { return s.classic.answers(s.fill(sign.expr, sign.port)) })
			}
			s.wantLabels(t, f)
		})
	}
	for name, sign := range more {
		t.Run(name, func(t *testing.T) {
			eventually(t, left(), func() error { return s.classic.answers(s.fill(sign.expr, sign.port)) })
		})
	}
	t.Run("container and pod", func(t *testing.T) {
		if why := s.lacks(collectors.Throttled.Name); why != "" {
			t.Log(why)
			return
		}
		eventually(t, left(), func() error {
			return s.classic.answers(fmt.Sprintf("velo_agent_exchanges_total{container=%q,pod=%q}", container, pod))
		})
	})
}

// wantLabels: no series has a label that the table does not name.
func (s *scene) wantLabels(t *testing.T, f *collectors.Family) {
	sets, err := s.classic.series(fmt.Sprintf(`{__name__=~"%s(_bucket|_count|_sum)?"}`, f.Name))
	if err != nil {
		t.Fatal(err)
	}
	known := append([]string{"__name__", "instance", "job"}, f.Labels...)
	for _, set := range sets {
		for label := range set {
			if !slices.Contains(known, label) && (label != "le" || f.Type != collectors.Histogram) {
				t.Fatalf("a series has the label %s, which the table does not name: %v", label, set)
			}
		}
	}
}

func (s *scene) testQueries(t *testing.T, left func() time.Duration) {
	for _, q := range dashboards.Queries() {
		t.Run(q.Dashboard+"/"+q.Panel, func(t *testing.T) {
			if why := s.lacks(q.Expr); why != "" {
				if _, err := s.classic.query(q.Expr); err != nil {
					t.Error(err)
				}
				t.Logf("it has no data here: %s", why)
				return
			}
			eventually(t, left(), func() error { return s.classic.answers(q.Expr) })
		})
	}
}

func (s *scene) testRules(t *testing.T, left func() time.Duration) {
	for _, r := range dashboards.Rules() {
		t.Run(r.Alert+r.Record, func(t *testing.T) {
			if _, err := s.classic.query(r.Expr); err != nil {
				t.Error(err)
			}
			if r.Record != "" {
				eventually(t, left(), func() error { return s.classic.answers(r.Record) })
			}
		})
	}
	got, err := s.classic.rules()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(dashboards.Rules()) {
		t.Errorf("Prometheus has %d rules, and there are %d", len(got), len(dashboards.Rules()))
	}
	for _, r := range got {
		if r.Health != "ok" {
			t.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
		}
	}
}

// testShares: what is a part of a whole lies in 0 to 1, and parts add up.
func (s *scene) testShares(t *testing.T) {
	between := func(expr string) {
		t.Helper()
		if err := s.classic.answers(expr); err != nil {
			t.Error(err)
		}
		if err := s.classic.silent(fmt.Sprintf("((%s) < 0) or ((%s) > 1)", expr, expr)); err != nil {
			t.Error(err)
		}
	}
	for _, q := range dashboards.Queries() {
		if strings.Contains(q.Expr, "(1 - ") || q.Panel == "Fill of tables" {
			between(q.Expr)
		}
	}
	for _, r := range dashboards.Rules() {
		if strings.HasSuffix(r.Record, ":share_5m") || strings.Contains(r.Record, ":ratio_") {
			between(r.Record)
		}
	}
	for _, of := range []string{"ttft", "gap"} {
		parts := fmt.Sprintf("sum by (instance, port) (velo_agent_%s_stage_seconds_sum)", of)
		whole := fmt.Sprintf("sum by (instance, port) (velo_agent_%s_seconds_sum > 0)", of)
		if err := s.classic.answers(fmt.Sprintf("%s / %s", parts, whole)); err != nil {
			t.Error(err)
		}
		if err := s.classic.silent(fmt.Sprintf("abs(%s / %s - 1) > 0.01", parts, whole)); err != nil {
			t.Error(err)
		}
	}
	s.testWaterfall(t)
}

// testWaterfall: the bars of the panels add up to the mean of the whole, too.
func (s *scene) testWaterfall(t *testing.T) {
	for _, of := range []string{"TTFT", "Gap"} {
		var bars float64
		for _, q := range dashboards.Queries() {
			if q.Panel != of+": mean of each stage" {
				continue
			}
			got, err := s.classic.query(strings.ReplaceAll(q.Expr, "[1m]", "[20s]"))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range got {
				bars += x.value
			}
		}
		family := "velo_agent_" + strings.ToLower(of) + "_seconds"
		mean, err := s.classic.query(fmt.Sprintf(`sum(rate(%[1]s_sum[20s])) / sum(rate(%[1]s_count[20s]))`, family))
		if err != nil || len(mean) != 1 {
			t.Fatal(mean, err)
		}
		if part := bars / mean[0].value; part < 0.97 || part > 1.03 { // the queries are not of one instant
			t.Errorf("the bars of %s add up to %v, the mean is %v", of, bars, mean[0].value)
		}
	}
}

// testCounters: a counter that goes back makes any rate of it nonsense.
func (s *scene) testCounters(t *testing.T) {
	for _, f := range slices.Concat(collectors.Table, velo.Table()) {
		var parts []string
		switch f.Type {
		case collectors.Counter:
			parts = []string{""}
		case collectors.Histogram:
			parts = []string{"_count", "_sum", "_bucket"}
		}
		for _, part := range parts {
			if err := s.classic.silent("resets(" + f.Name + part + "[5m]) > 0"); err != nil {
				t.Error(err)
			}
		}
	}
}

// testNative: what a Prometheus with native histograms keeps is the same.
func (s *scene) testNative(t *testing.T) {
	s.quiet()
	if s.native == nil {
		t.Log("this Prometheus has no native histograms")
		return
	}
	for _, f := range collectors.Table {
		if f.Type != collectors.Histogram {
			continue
		}
		eventually(t, 10*time.Second, func() error {
			classic, err := s.classic.query(fmt.Sprintf("sum(%s_count{instance=%q})", f.Name, s.daemon.Listen))
			if err != nil {
				return err
			}
			native, err := s.native.query("histogram_count(sum(" + f.Name + "))")
			if err != nil {
				return err
			}
			// Threads wake up still, and the two do not scrape at one moment.
			if len(classic) != 1 || len(native) != 1 || classic[0].value == 0 || math.Abs(native[0].value/classic[0].value-1) > 0.01 {
				return fmt.Errorf("%s: the classic count is %v, the native one %v", f.Name, classic, native)
			}
			return nil
		})
	}
	for _, f := range []collectors.Family{collectors.TTFT, collectors.Gap} {
		if err := s.native.answers("histogram_quantile(0.99, sum by (port) (rate(" + f.Name + "[1m])))"); err != nil {
			t.Error(err)
		}
	}
}

// testHelperKilled: without its helper a daemon serves on, and says so.
func (s *scene) testHelperKilled(t *testing.T) {
	if err := unix.Kill(s.victim.Helper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	down := fmt.Sprintf("velo_agent_helper_up{instance=%q} == 0", s.victim.Listen)
	eventually(t, 10*time.Second, func() error { return s.classic.answers(down) })
	eventually(t, 10*time.Second, func() error {
		a, err := get(client, s.victim.URL+"/readyz")
		if err == nil && (a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "velo_agent_helper_up")) {
			err = fmt.Errorf("/readyz without a helper: %d %s", a.status, a.body)
		}
		return err
	})
	s.victim.get(t, "/healthz")
	if body := s.victim.get(t, "/metrics").body; !strings.Contains(body, "velo_agent_record_snapshots") || strings.Contains(body, "velo_agent_exchanges_total") {
		t.Error("without a helper the daemon's own figures are there, and no others")
	}
}

// testAlerts: each alert was seen, its wait set to nothing, by its cause. The last
// ones are about agents that are gone.
func (s *scene) testAlerts(t *testing.T) {
	s.victim.stop(t)
	seen := func(alert string) string { return fmt.Sprintf("max_over_time(ALERTS{alertname=%q}[5m])", alert) }
	eventually(t, 15*time.Second, func() error { return s.classic.answers(seen("VeloAgentDown")) })
	s.daemon.stop(t)
	for _, r := range dashboards.Rules() {
		if r.Alert == "" {
			continue
		}
		t.Run(r.Alert, func(t *testing.T) {
			if why := s.lacks(r.Alert + " " + r.Expr); why != "" {
				t.Logf("it cannot be seen here: %s", why)
				return
			}
			eventually(t, 15*time.Second, func() error { return s.classic.answers(seen(r.Alert)) })
		})
	}
}
