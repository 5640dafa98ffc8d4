// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// testAPI: the pages answer as docs/daemon.md says.
func (s *scene) testAPI(t *testing.T) {
	d := s.daemon
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := d.get(t, path); a.body != "ok\n" {
			t.Errorf("%s says %q", path, a.body)
		}
	}
	eventually(t, 30*time.Second, func() error {
		return s.classic.answers(fmt.Sprintf("velo_agent_record_snapshots{instance=%q} > 12", d.Listen))
	})
	now := time.Now().UTC()
	at := func(t time.Time) string { return url.QueryEscape(t.Format(time.RFC3339)) }
	for _, query := range []string{
		"", "?for=5s", "?for=24h", "?at=" + at(now.Add(-10*time.Second)), "?at=" + at(now.Add(-10*time.Second)) + "&for=5s",
		"?at=" + url.QueryEscape(now.Add(-10*time.Second).In(time.FixedZone("", 3600)).Format(time.RFC3339Nano)) + "&for=8s",
	} {
		t.Run("report"+query, func(t *testing.T) {
			a := d.get(t, "/api/v1/report"+query)
			var report struct {
				Schema string
				Window float64 `json:"window_s"`
				Ports  []struct{ Port uint16 }
			}
			if err := json.Unmarshal([]byte(a.body), &report); err != nil {
				t.Fatal(err)
			}
			if report.Schema != "velo-agent.report.v1" || report.Window <= 0 {
				t.Errorf("it is a %q of %v s", report.Schema, report.Window)
			}
			var ports []uint16 // each once: another test's network namespace may have a listener of the same number
			for _, p := range report.Ports {
				ports = append(ports, p.Port)
			}
			slices.Sort(ports)
			if got, want := slices.Compact(slices.Clone(ports)), slices.Sorted(maps.Values(s.ports)); !slices.Equal(got, want) {
				t.Errorf("it is of the ports %v, want %v", ports, want)
			}
			if kind := a.header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("its content type is %q", kind)
			}
		})
	}
	for query, words := range map[string]string{
		"?for=soon": `for="soon"`, "?for=-5s": `for="-5s"`, "?for=0s": "above 0", "?for=25h": "up to 24h0m0s", "?for=5": "like 5m",
		"?at=14:03":          `at="14:03": give a time like 2006-01-02T15:04:05Z`,
		"?at=now&for=5m":     `at="now"`,
		"?for=" + long:       "give a time above 0",
		"?at=2026-13-01T00Z": "give a time like",
	} {
		t.Run("bad"+query[:min(20, len(query))], func(t *testing.T) {
			s.wantRefused(t, "/api/v1/report"+query, http.StatusBadRequest, words)
		})
	}
	t.Run("past", func(t *testing.T) {
		s.wantRefused(t, "/api/v1/report?for=5m&at="+at(now.AddDate(-20, 0, 0)), http.StatusNotFound, "the record has nothing from")
	})
	t.Run("unknown", func(t *testing.T) { s.wantRefused(t, "/nowhere", http.StatusNotFound, "") })
	// What changes or tells more is on the Unix socket alone.
	t.Run("reload", func(t *testing.T) { s.wantRefused(t, "/-/reload", http.StatusNotFound, "") })
	t.Run("measured", func(t *testing.T) { s.wantRefused(t, "/api/v1/measured", http.StatusNotFound, "") })
}

var long = strings.Repeat("9", 4000)

// wantRefused: the daemon answers with the status and a sentence, not a page.
func (s *scene) wantRefused(t *testing.T, path string, status int, words string) {
	t.Helper()
	a, err := get(client, s.daemon.URL+path)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != status || !strings.Contains(a.body, words) || len(a.body) > 300 {
		t.Error(fmt.Errorf("it answers %d %.300s; want %d and %q", a.status, a.body, status, words))
	}
}
