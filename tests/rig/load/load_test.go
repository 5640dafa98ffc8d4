// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func record(stream, sequence uint64, stamped bool) []byte {
	b := make([]byte, 160)
	Fill(b, stream, sequence, stamped)
	return b
}

// The filling is the one of tests/interop/README.md.
func TestFill(t *testing.T) {
	b := record(300, 70, false)
	for i := header; i < len(b); i++ {
		stream, sequence := 300, 70
		if want := byte(stream*31 + sequence*7 + i); b[i] != want {
			t.Fatalf("byte %d is %d, want %d", i, b[i], want)
		}
	}
	paced := record(300, 70, true)
	if !slices.Equal(paced[stamp:], b[stamp:]) || slices.Equal(paced[header:stamp], b[header:stamp]) {
		t.Error("a stamp replaces the first 8 bytes of the filling, and no more")
	}
}

func TestSink(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(*Sink, *Stream)
		want string // of the fault; "": none
	}{
		{"complete", func(_ *Sink, s *Stream) {
			s.Take(record(0, 0, true))
			s.Take(record(0, 1, true))
			s.End(nil)
		}, ""},
		{"other stream's", func(_ *Sink, s *Stream) { s.Take(record(1, 0, true)) }, "of stream 1"},
		{"again", func(_ *Sink, s *Stream) {
			s.Take(record(0, 0, true))
			s.Take(record(0, 0, true))
		}, "its record 1 was due"},
		{"content", func(_ *Sink, s *Stream) {
			b := record(0, 0, true)
			b[100]++
			s.Take(b)
		}, "content"},
		{"cut", func(_ *Sink, s *Stream) { s.Take(record(0, 0, true)[:159]) }, "159 bytes"},
		{"too few", func(_ *Sink, s *Stream) {
			s.Take(record(0, 0, true))
			s.End(nil)
		}, "1 of 2"},
		{"error", func(_ *Sink, s *Stream) { s.End(errors.New("reset")) }, "reset"},
		{"nobody's", func(k *Sink, _ *Stream) { k.Named(record(7, 0, true)) }, "names none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := NewSink(1, 2, 160, true)
			s := k.Stream(0)
			s.Request()
			c.run(k, s)
			at, err := k.Done()
			if c.want == "" {
				if err != nil || at == 0 || k.Ready() != nil || k.Setup.Quantiles().Count != 1 || k.Latency.Quantiles().Count != 1 {
					t.Errorf("ended at %d: %v", at, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("fault %v, want %q", err, c.want)
			}
		})
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for ns := range int64(100_000) {
		h.Add(ns)
	}
	q := h.Quantiles()
	for _, c := range []struct{ got, want uint64 }{{q.P50, 50_000}, {q.P99, 99_000}, {q.P999, 99_900}} {
		if d := float64(c.got)/float64(c.want) - 1; d > 0.016 || d < -0.016 {
			t.Errorf("%d, want %d", c.got, c.want)
		}
	}
	h.Add(-5)
	h.Add(1 << 62)
	if n := h.Quantiles().Count; n != 100_002 {
		t.Errorf("%d counted", n)
	}
}
