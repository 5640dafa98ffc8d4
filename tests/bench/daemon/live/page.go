// SPDX-License-Identifier: Apache-2.0

package live

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// The formats that a Prometheus server asks for, with and without native histograms.
const (
	Text     = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"
	Protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// Timing is one scrape as its client saw it.
type Timing struct {
	Took  time.Duration // from the request to the last byte of the body
	Bytes int64         // of the body, as sent
}

// Scrape asks for a page with gzip, as Prometheus does, and drops it.
func (d *Daemon) Scrape(ctx context.Context, format string) (t Timing, err error) {
	begun := time.Now()
	resp, err := d.get(ctx, "/metrics", http.Header{"Accept": {format}, "Accept-Encoding": {"gzip"}})
	if err != nil {
		return t, fmt.Errorf("scraping: %w", err)
	}
	defer resp.Body.Close()
	if t.Bytes, err = io.Copy(io.Discard, resp.Body); err != nil {
		return t, fmt.Errorf("reading a page of metrics: %w", err)
	}
	t.Took = time.Since(begun)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "gzip" {
		return t, fmt.Errorf("scraping: status %s, encoding %q", resp.Status, resp.Header.Get("Content-Encoding"))
	}
	return t, nil
}

// Size returns how long a page is before and after compression.
func (d *Daemon) Size(ctx context.Context, format string) (plain, sent int64, err error) {
	resp, err := d.get(ctx, "/metrics", http.Header{"Accept": {format}, "Accept-Encoding": {"gzip"}})
	if err != nil {
		return 0, 0, fmt.Errorf("asking for a page of metrics: %w", err)
	}
	defer resp.Body.Close()
	counted := &counter{r: resp.Body}
	z, err := gzip.NewReader(counted)
	if err != nil {
		return 0, 0, fmt.Errorf("decompressing a page of metrics: %w", err)
	}
	plain, err = io.Copy(io.Discard, z)
	return plain, counted.n, err
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// Page is one scrape, by the name of each family.
type Page map[string]*dto.MetricFamily

// Page takes a scrape apart. The daemon makes it for this request alone; its reading
// of the probes may be up to a second old.
func (d *Daemon) Page(ctx context.Context) (Page, error) {
	resp, err := d.get(ctx, "/metrics?for=page", http.Header{"Accept": {Protobuf}})
	if err != nil {
		return nil, fmt.Errorf("asking for a page of metrics: %w", err)
	}
	defer resp.Body.Close()
	page := Page{}
	dec := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header))
	for {
		f := &dto.MetricFamily{}
		switch err := dec.Decode(f); {
		case errors.Is(err, io.EOF):
			return page, nil
		case err != nil:
			return nil, fmt.Errorf("reading a page of metrics (status %s): %w", resp.Status, err)
		}
		page[f.GetName()] = f
	}
}

// Each calls f with every sample of a counter or gauge.
func (p Page) Each(family string, f func(labels map[string]string, v float64)) {
	for _, m := range p[family].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		f(labels, m.GetCounter().GetValue()+m.GetGauge().GetValue())
	}
}

// Sum adds up a counter or gauge over the series whose labels are these.
func (p Page) Sum(family string, labels ...string) (sum float64) {
	p.Each(family, func(have map[string]string, v float64) {
		for i := 0; i < len(labels); i += 2 {
			if have[labels[i]] != labels[i+1] {
				return
			}
		}
		sum += v
	})
	return sum
}

// Sets counts the label sets of all families, and the series that classic storage
// makes of them: a histogram has one for each bucket, its sum and its count.
func (p Page) Sets() (sets, series int) {
	for _, f := range p {
		for _, m := range f.Metric {
			sets++
			series++
			if h := m.Histogram; h != nil {
				series += len(h.Bucket) + 2 // +Inf is not among the buckets
			}
		}
	}
	return sets, series
}
