// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/collectors/velo"
)

// accepts are what a scraper says to get each form of the page.
var accepts = map[string]string{
	"text":        "text/plain; version=0.0.4",
	"OpenMetrics": "application/openmetrics-text; version=1.0.0",
	"protobuf":    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
}

// page gets a form of the page and parses it, by family.
func (d *daemon) page(t *testing.T, form string) map[string]*dto.MetricFamily {
	t.Helper()
	a := d.get(t, "/metrics", "Accept", accepts[form])
	media, _, _ := strings.Cut(accepts[form], ";")
	if !strings.HasPrefix(a.header.Get("Content-Type"), media) {
		t.Errorf("asked for %s the daemon gives %s", form, a.header.Get("Content-Type"))
	}
	body := a.body
	if form == "OpenMetrics" {
		body = sampled(body)
	}
	in := expfmt.NewDecoder(strings.NewReader(body), expfmt.ResponseFormat(a.header))
	families := map[string]*dto.MetricFamily{}
	for {
		var f dto.MetricFamily
		err := in.Decode(&f)
		if errors.Is(err, io.EOF) {
			return families
		}
		if err != nil {
			t.Fatalf("parsing the page as %s: %v", form, err)
		}
		families[f.GetName()] = &f
	}
}

var (
	sampleLine = regexp.MustCompile(`^(velo_[a-z0-9_]+?)(?:_bucket|_count|_sum)?(?:\{(.*?)\})? [^#]*(# .*)?$`)
	bound      = regexp.MustCompile(`,?le="[^"]*"`)
)

// sampled is one series of each of our families, one with an exemplar where there is
// one: the strict parser of OpenMetrics takes some 20 ms for a line. The client
// library's own metrics are left out: to OpenMetrics its go_memstats_alloc_bytes and
// go_memstats_alloc_bytes_total are one family, twice.
func sampled(page string) string {
	chosen, with := map[string]string{}, map[string]bool{}
	parts := func(line string) (family, labels, exemplar string) {
		m := sampleLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			return "", "", ""
		}
		return m[1], bound.ReplaceAllString(m[2], ""), m[3]
	}
	for line := range strings.Lines(page) {
		family, labels, exemplar := parts(line)
		if _, ok := chosen[family]; !ok || exemplar != "" && !with[family] {
			chosen[family], with[family] = labels, exemplar != ""
		}
	}
	var b strings.Builder
	for line := range strings.Lines(page) {
		family, labels, _ := parts(line)
		switch {
		case family != "" && chosen[family] == labels, strings.HasPrefix(line, "# ") && strings.Contains(line, " velo_"), line == "# EOF\n":
			b.WriteString(line)
		}
	}
	return b.String()
}

// testPages: every form of the page parses, and has no label but the table's.
func (s *scene) testPages(t *testing.T) {
	for form := range accepts {
		t.Run(form, func(t *testing.T) {
			page := s.daemon.page(t, form)
			for _, f := range slices.Concat(collectors.Table, velo.Table()) {
				got := page[f.Name]
				if got == nil {
					got = page[strings.TrimSuffix(f.Name, "_total")] // OpenMetrics' name
				}
				if got == nil {
					continue // its cause may come later
				}
				for _, m := range got.Metric {
					wantLabels(t, f, m)
					if h := m.GetHistogram(); form == "protobuf" && f.Type == collectors.Histogram && f.Docs != velo.Docs {
						wantSameCounts(t, f.Name, h)
					}
				}
			}
			if page[collectors.TTFT.Name] == nil {
				t.Error("the page has no TTFT")
			}
		})
	}
}

// wantLabels: a series has the labels of the table, less those that are empty.
func wantLabels(t *testing.T, f *collectors.Family, m *dto.Metric) {
	t.Helper()
	left := f.Labels
	for _, l := range m.Label {
		i := slices.Index(left, l.GetName())
		if i < 0 || l.GetValue() == "" {
			t.Errorf("a series of %s has the labels %v, the table names %v", f.Name, m.Label, f.Labels)
			return
		}
		left = left[i+1:]
	}
}

// wantSameCounts: both forms of a histogram hold as many samples.
func wantSameCounts(t *testing.T, name string, h *dto.Histogram) {
	t.Helper()
	if len(h.Bucket) == 0 || h.Schema == nil {
		t.Errorf("%s lacks a form: %d classic buckets, native schema %v", name, len(h.Bucket), h.Schema)
		return
	}
	sum, last := int64(h.GetZeroCount()), int64(0)
	for _, delta := range h.PositiveDelta {
		last += delta
		sum += last
	}
	if uint64(sum) != h.GetSampleCount() {
		t.Errorf("%s: the native buckets hold %d samples, and there are %d", name, sum, h.GetSampleCount())
	}
	if in := h.Bucket[len(h.Bucket)-1].GetCumulativeCount(); in > h.GetSampleCount() {
		t.Errorf("%s: the classic buckets hold %d samples, and there are %d", name, in, h.GetSampleCount())
	}
}

// testPromtool: Prometheus' own linter has nothing to say.
func (s *scene) testPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: install Debian's package prometheus")
	}
	for _, d := range []*daemon{s.daemon, s.victim} {
		cmd := exec.Command(tool, "check", "metrics")
		cmd.Stdin = strings.NewReader(d.get(t, "/metrics", "Accept", accepts["text"]).body)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("promtool check metrics: %v\n%s", err, out)
		}
	}
}

var exemplar = regexp.MustCompile(`(?m)^(velo_agent_[a-z_]+)_bucket\{.*le="(.*?)"\} \d+ # \{(.*?)="(.*?)"\} (\S+) (\S+)$`)

// testExemplars: an exemplar names a stream that the report of its time lists.
func (s *scene) testExemplars(t *testing.T) {
	for _, f := range []string{collectors.TTFT.Name, collectors.Gap.Name} {
		eventually(t, 20*time.Second, func() error {
			found := exemplar.FindAllStringSubmatch(s.daemon.get(t, "/metrics", "Accept", accepts["OpenMetrics"]).body, -1)
			found = slices.DeleteFunc(found, func(m []string) bool { return m[1] != f })
			if len(found) == 0 {
				return fmt.Errorf("%s has no exemplar", f)
			}
			var value, bound, at float64
			m := found[len(found)-1]
			if _, err := fmt.Sscan(m[5]+" "+m[2]+" "+m[6], &value, &bound, &at); err != nil || value > bound || m[3] != "stream" {
				t.Fatalf("an exemplar reads %s (%v)", m[0], err)
			}
			time.Sleep(1500 * time.Millisecond) // its window ends
			from := time.UnixMilli(int64(at*1e3) - 100).UTC().Format(time.RFC3339Nano)
			report := s.daemon.get(t, "/api/v1/report?for=1100ms&at="+from).body
			if !strings.Contains(report, fmt.Sprintf(`"id": %q`, m[4])) {
				return fmt.Errorf("the report from %s on lists no stream %s, which an exemplar of %s names", from, m[4], f)
			}
			return nil
		})
	}
}
