// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrHistogram: a text is no histogram.
var ErrHistogram = errors.New("not a histogram")

var textEncoding = base64.RawStdEncoding

// MarshalText writes the histogram as base64 of unsigned varints: the sum and the
// maximum in ns, then for each bucket in use the distance from the one before
// (from -1 for the first) and its count. Two or three bytes a bucket.
func (h Histogram) MarshalText() ([]byte, error) {
	b := binary.AppendUvarint(nil, uint64(h.SumTime))
	b = binary.AppendUvarint(b, uint64(h.MaxTime))
	last := -1
	for i, n := range h.Used() {
		b = binary.AppendUvarint(b, uint64(i-last))
		b = binary.AppendUvarint(b, n)
		last = i
	}
	return textEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText reads what MarshalText writes. Errors wrap ErrHistogram.
func (h *Histogram) UnmarshalText(text []byte) error {
	b, err := textEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHistogram, err)
	}
	var out Histogram
	next := func() (v uint64, ok bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	sum, ok1 := next()
	longest, ok2 := next()
	if !ok1 || !ok2 || sum > math.MaxInt64 || longest > math.MaxInt64 {
		return fmt.Errorf("%w: no sum or no maximum", ErrHistogram)
	}
	out.SumTime, out.MaxTime = time.Duration(sum), time.Duration(longest)
	at := uint64(0)
	for len(b) > 0 {
		step, ok1 := next()
		n, ok2 := next()
		if !ok1 || !ok2 || step == 0 || n == 0 || step > Buckets || at+step > Buckets {
			return fmt.Errorf("%w: a bucket after %d is not one", ErrHistogram, at)
		}
		if out.Total+n < n {
			return fmt.Errorf("%w: more samples than can be counted", ErrHistogram)
		}
		at += step
		out.AddBucket(int(at)-1, n)
	}
	*h = out
	return nil
}
