// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"math"
	"slices"
	"time"
)

// Read is one read of the client that delivered bytes.
type Read struct {
	At      int64 // CLOCK_MONOTONIC, ns, taken right after the read returned
	Bytes   int   // all bytes, framing included
	Head    bool  // the response's head ended in this read
	Role    bool  // a role-only event ended in it
	Content int   // number of content events that ended in it
	Other   int   // number of other events (finish, usage, comment, failure)
	Done    bool  // "[DONE]" ended in it
}

// Timing is one exchange as its client saw it. Stamps are CLOCK_MONOTONIC in
// nanoseconds.
type Timing struct {
	LocalPort int  // of the client's end of the connection
	Exchange  int  // number of this exchange on its connection, from 1
	Retried   bool // sent again on a new connection because the idle one was closed
	Status    int  // of the HTTP response

	DialStart  int64 // the connection was asked for; of this connection, so before earlier exchanges too
	Connected  int64 // the connection was there
	WriteStart int64 // just before the request was written
	WriteEnd   int64 // just after
	Reads      []Read
}

// TTFT returns the time from WriteStart to the read that delivered the first
// content, 0 where there was none. It begins before the write because on
// loopback the server may run before the client's write returns.
func (t *Timing) TTFT() time.Duration {
	for _, r := range t.Reads {
		if r.Content > 0 {
			return time.Duration(r.At - t.WriteStart)
		}
	}
	return 0
}

// Headers returns the time from WriteStart to the read that ended the head, 0
// where it did not come.
func (t *Timing) Headers() time.Duration {
	for _, r := range t.Reads {
		if r.Head {
			return time.Duration(r.At - t.WriteStart)
		}
	}
	return 0
}

// Gaps returns the times between successive content events. Events that came in
// the same read are 0 apart.
func (t *Timing) Gaps() []time.Duration {
	var gaps []time.Duration
	var last int64
	for _, r := range t.Reads {
		for i := range r.Content {
			switch {
			case i > 0:
				gaps = append(gaps, 0)
			case last != 0:
				gaps = append(gaps, time.Duration(r.At-last))
			}
			last = r.At
		}
	}
	return gaps
}

// ReadGaps returns the times between successive reads that delivered content: a
// read with several events counts once.
func (t *Timing) ReadGaps() []time.Duration {
	var gaps []time.Duration
	var last int64
	for _, r := range t.Reads {
		if r.Content == 0 {
			continue
		}
		if last != 0 {
			gaps = append(gaps, time.Duration(r.At-last))
		}
		last = r.At
	}
	return gaps
}

// Content returns the number of content events.
func (t *Timing) Content() int {
	n := 0
	for _, r := range t.Reads {
		n += r.Content
	}
	return n
}

// Bytes returns the number of bytes of the response, framing included.
func (t *Timing) Bytes() int {
	n := 0
	for _, r := range t.Reads {
		n += r.Bytes
	}
	return n
}

// Done says whether "[DONE]" came.
func (t *Timing) Done() bool {
	return slices.ContainsFunc(t.Reads, func(r Read) bool { return r.Done })
}

// Quantile returns the value at or below which the share q (0 to 1) of ds lies,
// by nearest rank, 0 for none. ds keeps its order.
func Quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ds))
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// Quantiles are the usual three, and the largest.
type Quantiles struct {
	Count              int
	P50, P90, P99, Max time.Duration
}

// QuantilesOf computes the quantiles of ds.
func QuantilesOf(ds []time.Duration) Quantiles {
	sorted := slices.Sorted(slices.Values(ds))
	return Quantiles{
		Count: len(sorted),
		P50:   Quantile(sorted, 0.50), P90: Quantile(sorted, 0.90), P99: Quantile(sorted, 0.99), Max: Quantile(sorted, 1),
	}
}

// Summary is what a set of exchanges looked like to its clients.
type Summary struct {
	TTFT     Quantiles
	Gaps     Quantiles // between content events
	ReadGaps Quantiles // between reads with content
}

// Summarize computes the quantiles over all exchanges that brought content.
func Summarize(timings []Timing) Summary {
	var ttft, gaps, reads []time.Duration
	for i := range timings {
		t := &timings[i]
		if t.Content() == 0 {
			continue
		}
		ttft = append(ttft, t.TTFT())
		gaps = append(gaps, t.Gaps()...)
		reads = append(reads, t.ReadGaps()...)
	}
	return Summary{TTFT: QuantilesOf(ttft), Gaps: QuantilesOf(gaps), ReadGaps: QuantilesOf(reads)}
}
