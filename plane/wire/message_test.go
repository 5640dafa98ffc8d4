// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestResponseID(t *testing.T) {
	const generation = 1<<48 - 2
	id := NewResponseID(goWorker, 0xfffe, generation)
	equal(t, id[:], "96bf11e721de6cc5 feff feffffffffff")
	if id.Worker() != goWorker || id.Slot() != 0xfffe || id.Generation() != generation {
		t.Errorf("worker %d, slot %d, generation %d", id.Worker(), id.Slot(), id.Generation())
	}
	if id := NewResponseID(1, 2, 1<<48|3); id.Generation() != 3 {
		t.Errorf("generation %d, want the low 48 bits", id.Generation())
	}
}

const (
	helloHeader  = "01 02 96bf11e721de6cc5 0000 010000000000 0600 5f68656c6c6f 0000"
	attachHeader = "01 02 96bf11e721de6cc5 0100 020000000000 0e00 5f616e63686f725f617474616368 0000"
	batchMessage = "01 00 96bf11e721de6cc5 0000000000000000 0d00 5f73747265616d5f6261746368 0000"
)

func TestMessageHeader(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kind    Kind
		id      ResponseID
		handler string
		headers map[string]string
		hex     string
	}{
		{"hello", Unary, NewResponseID(goWorker, 0, 1), HandlerHello, nil, helloHeader},
		{"attach", Unary, NewResponseID(goWorker, 1, 2), HandlerAttach, nil, attachHeader},
		{"batch", FireAndForget, NewResponseID(goWorker, 0, 0), BatchHandler, nil, batchMessage},
		{"empty headers", AckNack, NewResponseID(1, 0, 0), "é", map[string]string{}, "01 01 0100000000000000 0000000000000000 0200 c3a9 0100 80"},
		{"headers", FireAndForget, NewResponseID(1, 0, 0), "h", map[string]string{"b": "ü", "_rv": "12"}, "01 00 0100000000000000 0000000000000000 0100 68 0d00 82 a35f7276 a23132 a162 a2c3bc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers, err := AppendHeaders(nil, tt.headers)
			if err != nil {
				t.Fatal(err)
			}
			b, err := AppendMessageHeader(nil, tt.kind, tt.id, tt.handler, headers)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, b, tt.hex)
			h, err := ParseMessageHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			if h.Kind != tt.kind || h.ID != tt.id || string(h.Handler) != tt.handler || (h.Headers == nil) != (tt.headers == nil) {
				t.Errorf("read as %+v", h)
			}
			for key, want := range tt.headers {
				if got, ok := LookupHeader(h.Headers, key); !ok || got != want {
					t.Errorf("header %s: %q, %v", key, got, ok)
				}
			}
		})
	}
}

func TestMessageHeaderLimits(t *testing.T) {
	kept := []byte("kept")
	for _, tt := range []struct {
		name    string
		kind    Kind
		handler string
		headers []byte
		ok      bool
	}{
		{"longest name", Unary, strings.Repeat("x", 65535), nil, true},
		{"name too long", Unary, strings.Repeat("x", 65536), nil, false},
		{"no name", Unary, "", nil, false},
		{"name not UTF-8", Unary, "\xff", nil, false},
		{"kind", 3, "h", nil, false},
		{"headers too long", Unary, "h", make([]byte, 16385), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := AppendMessageHeader(kept, tt.kind, ResponseID{}, tt.handler, tt.headers)
			if !tt.ok {
				wantErr(t, err, ErrHeader)
				if !bytes.Equal(b, kept) {
					t.Errorf("dst became %d bytes", len(b))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if h, err := ParseMessageHeader(b[len(kept):]); err != nil || string(h.Handler) != tt.handler {
				t.Errorf("a name of %d bytes, %v", len(h.Handler), err)
			}
		})
	}
}

func TestMessageHeaderMalformed(t *testing.T) {
	const id = "96bf11e721de6cc5 0000000000000000"
	for name, digits := range map[string]string{
		"empty":                   "",
		"one byte short":          "01 00 " + id + "0100 00",
		"schema":                  "02 00 " + id + "0100 68 0000",
		"kind":                    "01 03 " + id + "0100 68 0000",
		"no name":                 "01 00 " + id + "0000 0000 00",
		"name cut":                "01 00 " + id + "0200 68 0000",
		"name big-endian":         "01 00 " + id + "0001 68 0000",
		"no headers length":       "01 00 " + id + "0200 6868 00",
		"name not UTF-8":          "01 00 " + id + "0200 ff68 0000",
		"headers cut":             "01 00 " + id + "0100 68 0200 80",
		"headers not a map":       "01 00 " + id + "0100 68 0100 90",
		"headers with an int":     "01 00 " + id + "0100 68 0400 81 a161 01",
		"headers with an int key": "01 00 " + id + "0100 68 0300 81 01 a0",
		"headers not UTF-8":       "01 00 " + id + "0100 68 0500 81 a161 a1ff",
		"headers of 4 billion":    "01 00 " + id + "0100 68 0500 df ffffffff",
		"a response header":       id + "00 0000 00 00 00",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseMessageHeader(unhex(t, digits))
			wantErr(t, err, ErrHeader)
		})
	}
	t.Run("headers too long", func(t *testing.T) {
		b := append(unhex(t, "01 00 "+id+"0100 68 0140 de1000"), bytes.Repeat([]byte{0xa0}, 16382)...)
		_, err := ParseMessageHeader(b)
		wantErr(t, err, ErrHeader)
	})
}

// velo's reader ignores what follows the headers, and the map inside them.
func TestMessageHeaderTolerance(t *testing.T) {
	h, err := ParseMessageHeader(unhex(t, "01 00 96bf11e721de6cc5 0000000000000000 0100 68 0700 81 a161 c40162 ff ee"))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := LookupHeader(h.Headers, "a"); !ok || v != "b" {
		t.Errorf("%q, %v", v, ok)
	}
}

func TestAppendHeaders(t *testing.T) {
	many := map[string]string{}
	for i := range 40 {
		many[fmt.Sprintf("key-%02d-é", i)] = strings.Repeat("v", i*8)
	}
	b, err := AppendHeaders(nil, many)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := walkHeaders(b, func(k, v []byte) { got[string(k)] = string(v) }); err != nil || !maps.Equal(got, many) {
		t.Errorf("%d headers came back, %v", len(got), err)
	}
	if b, err := AppendHeaders([]byte{1}, nil); err != nil || len(b) != 1 {
		t.Errorf("no headers: %x, %v", b, err)
	}
	for name, kv := range map[string]map[string]string{
		"value too long":  {"a": strings.Repeat("v", 1025)},
		"all too long":    {"a": strings.Repeat("v", 1024), strings.Repeat("k", 16384): ""},
		"value not UTF-8": {"a": "\xff"},
		"key not UTF-8":   {"\xff": "a"},
	} {
		b, err := AppendHeaders([]byte{1}, kv)
		wantErr(t, err, ErrHeader)
		if len(b) != 1 {
			t.Errorf("%s: dst became %d bytes", name, len(b))
		}
	}
	if _, err := AppendHeaders(nil, map[string]string{"a": strings.Repeat("v", 1024)}); err != nil {
		t.Error(err)
	}
}

func TestLookupHeader(t *testing.T) {
	for _, tt := range []struct {
		name, hex, want string
		ok              bool
	}{
		{"no headers", "", "", false},
		{"no such key", "81 a162 a163", "", false},
		{"given twice", "82 a161 a162 a161 a163", "c", true},
		{"malformed", "82 a161 a162 a1", "", false},
	} {
		if v, ok := LookupHeader(unhex(t, tt.hex), "a"); v != tt.want || ok != tt.ok {
			t.Errorf("%s: %q, %v", tt.name, v, ok)
		}
	}
}

func TestResponseHeader(t *testing.T) {
	id := NewResponseID(goWorker, 0, 1)
	for _, tt := range []struct {
		name string
		h    ResponseHeader
		hex  string
	}{
		{"ok", ResponseHeader{ID: id, OK: true}, "96bf11e721de6cc5 0000 010000000000 00 0000"},
		{"error", ResponseHeader{ID: id}, "96bf11e721de6cc5 0000 010000000000 01 0000"},
		{"empty headers", ResponseHeader{ID: id, OK: true, Headers: []byte{0x80}}, "96bf11e721de6cc5 0000 010000000000 00 0100 80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := AppendResponseHeader(nil, tt.h)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, b, tt.hex)
			h, err := ParseResponseHeader(b)
			if err != nil || h.ID != tt.h.ID || h.OK != tt.h.OK || !bytes.Equal(h.Headers, tt.h.Headers) || (h.Headers == nil) != (tt.h.Headers == nil) {
				t.Errorf("read as %+v, %v", h, err)
			}
		})
	}
	if h, err := ParseResponseHeader(unhex(t, "96bf11e721de6cc5 0000 010000000000 07 0000")); err != nil || h.OK {
		t.Errorf("outcome 7: %+v, %v", h, err)
	}
	for name, digits := range map[string]string{
		"empty":       "",
		"18 bytes":    "96bf11e721de6cc5 0000 010000000000 00 00",
		"headers cut": "96bf11e721de6cc5 0000 010000000000 00 0200 80",
		"headers":     "96bf11e721de6cc5 0000 010000000000 00 0100 c0",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseResponseHeader(unhex(t, digits))
			wantErr(t, err, ErrHeader)
		})
	}
	_, err := AppendResponseHeader(nil, ResponseHeader{Headers: make([]byte, 65536)})
	wantErr(t, err, ErrHeader)
}

func TestAckHeader(t *testing.T) {
	const id = "96bf11e721de6cc5 0000 010000000000"
	for _, tt := range []struct {
		hex       string
		event, ok bool
	}{
		{"00" + id, false, true},
		{"02" + id, false, false},
		{"01" + id, true, true},
		{"03" + id, true, false},
	} {
		want := AckHeader{ID: NewResponseID(goWorker, 0, 1), Event: tt.event, OK: tt.ok}
		equal(t, AppendAckHeader(nil, want), tt.hex)
		if h, err := ParseAckHeader(unhex(t, tt.hex)); err != nil || h != want {
			t.Errorf("%s read as %+v, %v", tt.hex, h, err)
		}
	}
	for _, digits := range []string{"", "00", "04" + id, "80" + id, "00" + id + "00", ("00" + id)[:len(id)]} {
		_, err := ParseAckHeader(unhex(t, digits))
		wantErr(t, err, ErrHeader)
	}
}

func TestMessageAllocs(t *testing.T) {
	headers, err := AppendHeaders(nil, map[string]string{"traceparent": "00-1-2-01", "tracestate": "a=b"})
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	write := func() { b, err = AppendMessageHeader(b[:0], FireAndForget, ResponseID{}, BatchHandler, headers) }
	write()
	noAllocs(t, "AppendMessageHeader", write)
	noAllocs(t, "ParseMessageHeader", func() { _, err = ParseMessageHeader(b) })
	noAllocs(t, "LookupHeader", func() { _, _ = LookupHeader(headers, HeaderRendezvous) })
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkParseMessageHeader(b *testing.B) {
	h := unhex(b, batchMessage)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMessageHeader(h); err != nil {
			b.Fatal(err)
		}
	}
}
