// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/tests/peers"
	"github.com/velo-agent/velo-agent/tests/results"
)

// compare judges the first port of the report against the clients' stamps.
func compare(r *results.Run, name string, rep *diagnosis.Report, timings []peers.Timing, file string) error {
	if len(timings) == 0 || len(rep.Ports) == 0 {
		return errors.New("nothing was measured")
	}
	if err := keep(rep, file); err != nil {
		return err
	}
	var ttft, gaps []time.Duration
	for i := range timings {
		ttft = append(ttft, timings[i].TTFT())
		gaps = append(gaps, recordGaps(&timings[i])...)
	}
	p := rep.Ports[0]
	if p.TTFT == nil || p.Gap == nil {
		return errors.New("the report has no TTFT or no gap")
	}
	for _, c := range []struct {
		what         string
		ours, theirs time.Duration
		n            int
	}{
		{"TTFT p50", seconds(p.TTFT.P50), peers.Quantile(ttft, 0.5), len(ttft)},
		{"TTFT p99", seconds(p.TTFT.P99), peers.Quantile(ttft, 0.99), len(ttft)},
		{"gap p50", seconds(p.Gap.P50), peers.Quantile(gaps, 0.5), len(gaps)},
		{"gap p99", seconds(p.Gap.P99), peers.Quantile(gaps, 0.99), len(gaps)},
	} {
		allowed := max(absolute, time.Duration(relative*float64(c.theirs)))
		off := float64((c.ours - c.theirs).Abs()) / float64(allowed)
		note := fmt.Sprintf("agent %v, clients %v; unit: what 1 ms or 2 %% allows", c.ours.Round(time.Microsecond), c.theirs.Round(time.Microsecond))
		r.Add(name+": "+c.what, off, "×", 1, results.Lower, c.n, note)
	}
	r.Add(name+": exchanges seen", exchanges(p)/float64(len(timings)), "ratio", 1, results.Higher, len(timings), "")
	return nil
}

// recordGaps are the times between the reads that brought an event: what the
// agent calls a record of a plain connection is a response write.
func recordGaps(t *peers.Timing) []time.Duration {
	var out []time.Duration
	var last int64
	begun := false
	for _, x := range t.Reads {
		begun = begun || x.Content > 0
		if !begun || x.Content+x.Other == 0 {
			continue
		}
		if last > 0 {
			out = append(out, time.Duration(x.At-last))
		}
		last = x.At
	}
	return out
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// keep writes the report where a person can read it.
func keep(rep *diagnosis.Report, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(diagnosis.WriteMarkdown(f, rep), f.Close())
}

func exchanges(p diagnosis.PortReport) float64 {
	if p.Exchanges == nil {
		return 0
	}
	return float64(*p.Exchanges)
}
