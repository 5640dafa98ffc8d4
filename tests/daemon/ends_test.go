// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

// TestHelperKilled: the daemon serves on and says what it lost.
func TestHelperKilled(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}", s.port))
	s.ask(t, 10)
	d.becomes(t, 10, "velo_agent_exchanges_total", "port", s.label())
	d.fulfils(t, "snapshots", func(n float64) bool { return n >= 3 }, "velo_agent_record_snapshots")

	helper := d.helper(t)
	probes := attachedBy(t, helper)
	if err := unix.Kill(helper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	promptly(t, "probes gone", probes.gone)
	var reason string
	eventually(t, "/readyz says no", 3*time.Second, func() error {
		status, body, err := get(d.tcp, "/readyz")
		if reason = body; err == nil && status != http.StatusServiceUnavailable {
			err = fmt.Errorf("it says %d %s", status, body)
		}
		return err
	})
	if !strings.Contains(reason, "probes") {
		t.Errorf("/readyz does not say why: %q", reason)
	}
	d.becomes(t, 0, "velo_agent_helper_up")
	p, err := d.metrics()
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := p.value("velo_agent_exchanges_total"); ok {
		t.Errorf("exchanges are still said to be %v: absent is not zero, and not the last that was known", v)
	}
	if status, _, err := get(d.tcp, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz says %d, %v", status, err)
	}
	if left := live.Children(d.PID); len(left) > 0 {
		t.Errorf("the daemon has the children %v: zombies", left)
	}
	for _, want := range []string{"the helper ended", "no reading of the probes"} {
		if len(lines(d.said(), want)) != 1 {
			t.Errorf("the log does not say once: %s", want)
		}
	}

	// The record has what was seen, and nothing that was not.
	died, snapshots := time.Now(), d.recorded(t).Snapshots
	time.Sleep(2500 * time.Millisecond)
	rec := d.recorded(t)
	if rec.Snapshots != snapshots || rec.Damaged != 0 || rec.To.After(died) {
		t.Errorf("the record has %d snapshots, not %d, until %v (%d damaged)", rec.Snapshots, snapshots, rec.To, rec.Damaged)
	}
	if hole := rec.To.Sub(rec.From) - rec.Window; hole.Abs() > time.Second/2 {
		t.Errorf("the windows of %v to %v add up to %v", rec.From, rec.To, rec.Window)
	}
	if len(rec.Ports) != 1 || *rec.Ports[0].Exchanges != 10 {
		t.Errorf("the record has the ports %+v, not one with 10 exchanges", rec.Ports)
	}
	if _, err := agent.ReadRecord(d.Record(), died, time.Now()); !errors.Is(err, agent.ErrNotThere) {
		t.Errorf("the record of the time without probes: %v", err)
	}
	d.stop(t)
}

// recorded reads all that the record holds, from its folder.
func (d *daemon) recorded(t *testing.T) *agent.Recorded {
	t.Helper()
	rec, err := agent.ReadRecord(d.Record(), time.Now().Add(-time.Hour), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestDaemonKilled: with the daemon its helper and the probes are gone.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}", s.port))
	s.ask(t, 5)
	helper := d.helper(t)
	probes := attachedBy(t, helper)
	d.signal(t, unix.SIGKILL)
	promptly(t, "helper and probes gone", func() error {
		if live.Running(helper) {
			return errors.New("the helper runs")
		}
		return probes.gone()
	})
	<-d.Ended()

	// The socket's file is left, and keeps no other from starting.
	if _, err := os.Stat(d.Socket()); err != nil {
		t.Fatal(err)
	}
	d.run(t)
	d.ready(t)
	d.stop(t)
}

// TestStop: probes go first, a request under way ends in order.
func TestStop(t *testing.T) {
	t.Parallel()
	d := startBusy(t, "drain_timeout: 1m")
	probes := attachedBy(t, d.helper(t))
	reader := d.readSlowly(t)
	d.signal(t, unix.SIGTERM)
	promptly(t, "probes gone", probes.gone)
	select {
	case <-d.Ended():
		t.Fatal("the daemon did not wait for the request under way")
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := parse(reader.rest(t)); err != nil {
		t.Errorf("the request under way was answered with no page: %v", err)
	}
	if code := d.wait(t, patience); code != 0 {
		t.Errorf("stopped with code %d", code)
	}
	if _, err := os.Stat(d.Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file is left: %v", err)
	}
}

// TestStopWritesTheWindow: what was seen until the stop is in the record.
func TestStopWritesTheWindow(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}\nrecord: {every: 1h}", s.port))
	s.ask(t, 10)
	d.becomes(t, 10, "velo_agent_exchanges_total", "port", s.label())
	probes := attachedBy(t, d.helper(t))
	d.signal(t, unix.SIGTERM)
	promptly(t, "probes gone", probes.gone)
	if code := d.wait(t, patience); code != 0 {
		t.Errorf("stopped with code %d", code)
	}
	if rec := d.recorded(t); rec.Snapshots != 1 || len(rec.Ports) != 1 || *rec.Ports[0].Exchanges != 10 {
		t.Errorf("the record has %d snapshots, the ports %+v; want one, with 10 exchanges", rec.Snapshots, rec.Ports)
	}
}

// TestStopWithoutAnswer: a helper that stands still holds the stop up for no longer than
// the last reading may take.
func TestStopWithoutAnswer(t *testing.T) {
	t.Parallel()
	d := start(t, "record: {every: 1h}")
	helper := d.helper(t)
	probes := attachedBy(t, helper)
	if err := unix.Kill(helper, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.signal(t, unix.SIGTERM)
	promptly(t, "the daemon gone", func() error {
		if live.Running(d.PID) {
			return errors.New("it runs")
		}
		return nil
	})
	if err := unix.Kill(helper, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	promptly(t, "probes gone", probes.gone)
}

// TestStopCutsOff: who does not read is cut off at the end of drain_timeout.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	d := startBusy(t, "drain_timeout: 1s")
	d.readSlowly(t)
	d.signal(t, unix.SIGTERM)
	if code := d.wait(t, 15*time.Second); code != 0 {
		t.Errorf("stopped with code %d", code)
	}
	if len(lines(d.said(), "cut off")) != 1 {
		t.Error("the log does not say that a request was cut off")
	}
}

// TestStopTwice: the second signal ends at once.
func TestStopTwice(t *testing.T) {
	t.Parallel()
	d := startBusy(t, "drain_timeout: 10m")
	probes := attachedBy(t, d.helper(t))
	d.readSlowly(t)
	d.signal(t, unix.SIGTERM)
	eventually(t, "probes detached", patience, func() error {
		if lines(d.said(), "probes detached") == nil {
			return errors.New("the log does not say so")
		}
		return nil
	})
	d.signal(t, unix.SIGTERM)
	if code := d.wait(t, 5*time.Second); code != 5 {
		t.Errorf("ended with code %d", code)
	}
	promptly(t, "probes gone", probes.gone)
}

// TestSecondDaemon: one daemon a socket; the first is not disturbed.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}", s.port))
	_, said, code := velo(t, "run", "--config", d.Config())
	if code != 5 || !strings.Contains(said, agent.ErrRunning.Error()) || !strings.Contains(said, d.Socket()) {
		t.Errorf("the second ends with %d and says %q", code, said)
	}
	s.ask(t, 5)
	d.becomes(t, 5, "velo_agent_exchanges_total", "port", s.label())
	var out struct{ Schema string }
	said, _, _ = velo(t, "diagnose", "--socket", d.Socket(), "--for", "100ms", "--json")
	if err := json.Unmarshal([]byte(said), &out); err != nil || out.Schema == "" {
		t.Errorf("over the socket: %v, %.200s", err, said)
	}
}
