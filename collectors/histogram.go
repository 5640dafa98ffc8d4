// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"math"
	"time"

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

// upperBounds are the same in seconds.
var upperBounds = func() (s []float64) {
	for _, b := range bounds {
		s = append(s, b.Seconds())
	}
	return s
}()

// nativeSchema: 8 buckets in each power of two, 9 % wide; ours are 1.6 % wide.
const nativeSchema = 3

// Exemplar is one stream that stands for its bucket.
type Exemplar struct {
	Value  time.Duration
	Stream string // its ID; it says nothing about content
	At     time.Time
}

// histogramOf serves one histogram in both forms: classic buckets for every format,
// and native ones, which the protobuf format alone carries.
func histogramOf(r *row) *dto.Histogram {
	src := r.histogram
	out := &dto.Histogram{
		SampleCount: new(src.Count()), SampleSum: new(src.Sum().Seconds()),
		Schema: new(int32(nativeSchema)), ZeroThreshold: new(time.Microsecond.Seconds()), ZeroCount: new(uint64(0)),
	}
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
	slab, counts := make([]dto.Bucket, len(bounds)), make([]uint64, len(bounds))
	out.Bucket = make([]*dto.Bucket, len(bounds))
	for i := range bounds {
		sum += classic[i]
		counts[i] = sum
		slab[i].UpperBound, slab[i].CumulativeCount = &upperBounds[i], &counts[i]
		out.Bucket[i] = &slab[i]
	}
	exemplify(out, r.exemplars)
	return out
}

// exemplify puts at most one exemplar in each bucket, the longest.
func exemplify(out *dto.Histogram, list []Exemplar) {
	for _, e := range list {
		_, high := attribution.BucketBounds(attribution.Bucket(e.Value))
		for i, b := range bounds {
			if high > b {
				continue // its sample is counted further up
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
