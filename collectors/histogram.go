// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/velo-agent/velo-agent/attribution"
)

// bounds are the upper bounds of the classic buckets: from what a healthy stage takes
// to what a client's timeout is.
var bounds = []time.Duration{
	10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond,
	2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// nativeSchema: 8 buckets in each power of two, 9 % wide; ours are 1.6 % wide.
const nativeSchema = 3

// Exemplar is one stream that stands for its bucket.
type Exemplar struct {
	Value  time.Duration
	Stream string // its ID; it says nothing about content
	At     time.Time
}

// histogram serves one histogram in both forms: classic buckets for every format, and
// native ones, which the protobuf format alone carries.
type histogram struct {
	f *Family
	r row
}

func (h *histogram) Desc() *prometheus.Desc { return h.f.desc() }

func (h *histogram) Write(m *dto.Metric) error {
	for i, name := range h.f.Labels {
		m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &h.r.labels[i]})
	}
	src := h.r.histogram
	out := &dto.Histogram{
		SampleCount: new(src.Count()), SampleSum: new(src.Sum().Seconds()),
		Schema: new(int32(nativeSchema)), ZeroThreshold: new(time.Microsecond.Seconds()), ZeroCount: new(uint64(0)),
	}
	m.Histogram = out
	classic := make([]uint64, len(bounds)+1)
	var spans native
	at := 0
	for b, n := range src.Used() {
		low, high := attribution.BucketBounds(b)
		for at < len(bounds) && high > bounds[at] {
			at++
		}
		classic[at] += n
		if low == 0 {
			*out.ZeroCount += n
			continue
		}
		mid := (low + (high-low)/2).Seconds()
		spans.add(int(math.Ceil(math.Log2(mid)*(1<<nativeSchema))), n)
	}
	out.PositiveSpan, out.PositiveDelta = spans.spans, spans.deltas
	var sum uint64
	for i, b := range bounds {
		sum += classic[i]
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: new(b.Seconds()), CumulativeCount: new(sum)})
	}
	h.exemplify(out)
	return nil
}

// exemplify puts at most one exemplar in each bucket, the longest.
func (h *histogram) exemplify(out *dto.Histogram) {
	for _, e := range h.r.exemplars {
		for i, b := range bounds {
			if e.Value > b {
				continue
			}
			x := &dto.Exemplar{
				Label: []*dto.LabelPair{{Name: new("stream"), Value: &e.Stream}},
				Value: new(e.Value.Seconds()), Timestamp: timestamppb.New(e.At),
			}
			if old := out.Bucket[i].Exemplar; old == nil || old.GetValue() < x.GetValue() {
				out.Bucket[i].Exemplar = x
			}
			break
		}
	}
}

// native builds the spans and deltas of native buckets that come in order.
type native struct {
	spans  []*dto.BucketSpan
	deltas []int64
	next   int   // the index after the last bucket
	last   int64 // its count
}

func (s *native) add(index int, n uint64) {
	if len(s.deltas) > 0 && index == s.next-1 { // several of ours in one of theirs
		s.deltas[len(s.deltas)-1] += int64(n)
		s.last += int64(n)
		return
	}
	if len(s.spans) == 0 || index != s.next {
		offset := int32(index)
		if len(s.spans) > 0 {
			offset = int32(index - s.next)
		}
		s.spans = append(s.spans, &dto.BucketSpan{Offset: &offset, Length: new(uint32(0))})
	}
	*s.spans[len(s.spans)-1].Length++
	s.deltas = append(s.deltas, int64(n)-s.last)
	s.last, s.next = int64(n), index+1
}
