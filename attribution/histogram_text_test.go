// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestHistogramText(t *testing.T) {
	var h Histogram
	for i := range 300 {
		h.Add(time.Duration(i*i*i) * time.Microsecond)
	}
	h.Add(time.Hour)
	text, err := h.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var got Histogram
	if err := got.UnmarshalText(text); err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%v, count %d of %d", err, got.Count(), h.Count())
	}
	var none, empty Histogram
	text, _ = none.MarshalText()
	if err := empty.UnmarshalText(text); err != nil || empty.Count() != 0 {
		t.Errorf("an empty one became %v, %v", empty, err)
	}
}

func TestHistogramTextRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"not base64":        "§",
		"nothing":           "",
		"no maximum":        textEncoding.EncodeToString([]byte{5}),
		"a step of 0":       textEncoding.EncodeToString([]byte{1, 1, 0, 1}),
		"a count of 0":      textEncoding.EncodeToString([]byte{1, 1, 1, 0}),
		"beyond the last":   textEncoding.EncodeToString([]byte{1, 1, 0xff, 0xff, 0x7f, 1}),
		"cut in a bucket":   textEncoding.EncodeToString([]byte{1, 1, 3}),
		"a number too long": textEncoding.EncodeToString([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}),
	} {
		h := Histogram{Total: 7}
		if err := h.UnmarshalText([]byte(text)); !errors.Is(err, ErrHistogram) || h.Total != 7 {
			t.Errorf("%s: %v, %v", name, err, h)
		}
	}
}

func TestHistogramSince(t *testing.T) {
	var before, now Histogram
	for _, d := range []time.Duration{time.Millisecond, 2 * time.Millisecond} {
		before.Add(d)
		now.Add(d)
	}
	now.Add(time.Microsecond)
	now.Add(time.Millisecond)
	d := now.Since(&before)
	if d.Count() != 2 || d.Sum() != 1001*time.Microsecond || d.MaxTime != 0 {
		t.Errorf("%d samples, %v, at most %v", d.Count(), d.Sum(), d.MaxTime)
	}
	now.Add(time.Second)
	if d := now.Since(&before); d.Max() != time.Second {
		t.Errorf("the maximum is %v", d.Max())
	}
	if d := before.Since(&now); !reflect.DeepEqual(*d, before) {
		t.Errorf("what began anew is %+v", d)
	}
}
