// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/config"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// TestRecordIsTriedAgain: one that cannot be opened at first is, with a later window.
func TestRecordIsTriedAgain(t *testing.T) {
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Record.Dir = filepath.Join(inTheWay, "record")
	var log bytes.Buffer
	d := &Daemon{log: slog.New(slog.NewTextHandler(&log, nil))}
	d.record = newKeeper(c, d.log)
	ask := func(want int) {
		t.Helper()
		w := httptest.NewRecorder()
		rec, ok := d.span(w, httptest.NewRequest(http.MethodGet, "/api/v1/window", nil))
		if ok != (want == http.StatusOK) || w.Code != want || ok && rec.Snapshots != 1 {
			t.Errorf("/api/v1/window answers %d %q, want %d", w.Code, w.Body, want)
		}
	}
	now := func() window { return window{time.Now(), windowOf(1)} }
	d.record.keep(now())
	d.record.keep(now())
	if st := d.record.state(); st.Failures["open"] != 3 || st.Snapshots != 0 {
		t.Errorf("after three tries it is %+v", st)
	}
	ask(http.StatusNotFound)

	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { // as scrapes do
		for range 100 {
			d.record.state()
		}
	})
	d.record.keep(now())
	readers.Wait()
	if st := d.record.state(); st.Failures["open"] != 3 || st.Snapshots != 1 || st.Bytes == 0 {
		t.Errorf("it is %+v, want one snapshot and three failures", st)
	}
	ask(http.StatusOK)
	for _, line := range []string{"windows are not recorded; trying again", "windows are recorded again"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("the log says %d times, not once: %s\n%s", n, line, log.String())
		}
	}
	if err := d.record.close(); err != nil {
		t.Error(err)
	}
}

// oneAtATime is a source like the helper: who closes it waits for the reading under way.
type oneAtATime struct {
	mu      sync.Mutex
	measure func(context.Context) (*diagnosis.Measured, error)
}

func (s *oneAtATime) Measure(ctx context.Context, _ Reading) (*diagnosis.Measured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.measure(ctx)
}

func (s *oneAtATime) Rewatch(context.Context, Watch, bpf.Objectives) error { return nil }

func (s *oneAtATime) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure = func(context.Context) (*diagnosis.Measured, error) { panic("measured after it was closed") }
	return nil
}

// runUntilStopped runs a daemon of the source that is told to stop at once, and returns
// its record's folder.
func runUntilStopped(t *testing.T, s Source) string {
	t.Helper()
	c := config.Default()
	c.Listen, c.Socket.Path = "", ""
	c.Record.Dir, c.Record.Every = t.TempDir(), time.Hour
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Run(ctx, &Parts{Config: c, Source: s, Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar)}, nil); err != nil {
		t.Error(err)
	}
	return c.Record.Dir
}

// TestLastWindow: what was seen until the stop is in the record.
func TestLastWindow(t *testing.T) {
	dir := runUntilStopped(t, &oneAtATime{measure: func(context.Context) (*diagnosis.Measured, error) { return windowOf(30), nil }})
	rec, err := ReadRecord(dir, time.Now().Add(-time.Hour), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if rec.Snapshots != 1 || *rec.Ports[0].Exchanges != 30 {
		t.Errorf("the record has %d snapshots, %+v", rec.Snapshots, rec.Ports)
	}
}

// TestLastWindowHoldsNothingUp: a reading that does not come is given up, long before
// one that somebody waits for would be.
func TestLastWindowHoldsNothingUp(t *testing.T) {
	var ended error
	runUntilStopped(t, &oneAtATime{measure: func(ctx context.Context) (*diagnosis.Measured, error) {
		<-ctx.Done()
		ended = ctx.Err()
		return nil, ended
	}})
	if ended != context.Canceled {
		t.Errorf("the last reading ended with %v, not given up", ended)
	}
}
