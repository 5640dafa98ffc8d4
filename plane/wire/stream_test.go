// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"
)

func TestStreamFrames(t *testing.T) {
	for _, tt := range []struct {
		name     string
		frame    []byte
		hex      string
		kind     FrameKind
		body     string
		terminal bool
	}{
		{"item", AppendItem(nil, []byte("\xa5hello")), "81a44974656d a568656c6c6f", Item, "a568656c6c6f", false},
		{"u32", AppendItem(nil, []byte{0x2a}), "81a44974656d2a", Item, "2a", false},
		{"unit", AppendItem(nil, []byte{0xc0}), "81a44974656dc0", Item, "c0", false},
		{"vec", AppendItem(nil, unhex(t, "9301ccc8ccff")), "81a44974656d9301ccc8ccff", Item, "9301ccc8ccff", false},
		{"bytes", AppendItemBytes(nil, []byte("hi")), "81a44974656d c4026869", Item, "c4026869", false},
		{"no bytes", AppendItemBytes(nil, nil), "81a44974656d c400", Item, "c400", false},
		{"sender error", AppendError(nil, SenderError, "no"), "81 ab 53656e6465724572726f72 a26e6f", SenderError, "6e6f", false},
		{"transport error", AppendError(nil, TransportError, ""), "81 ae 5472616e73706f72744572726f72 a0", TransportError, "", true},
		{"not UTF-8", AppendError(nil, SenderError, "\xff"), "81 ab 53656e6465724572726f72 a3efbfbd", SenderError, "efbfbd", false},
		{"dropped", FrameDropped, "a7 44726f70706564", Dropped, "", true},
		{"detached", FrameDetached, "a8 4465746163686564", Detached, "", true},
		{"finalized", FrameFinalized, "a9 46696e616c697a6564", Finalized, "", true},
		{"heartbeat", FrameHeartbeat, "a9 486561727462656174", Heartbeat, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, tt.frame, tt.hex)
			kind, body, err := ParseStreamFrame(tt.frame)
			if err != nil || kind != tt.kind {
				t.Errorf("read as %s, %v", kind, err)
			}
			equal(t, body, tt.body)
			if IsTerminal(tt.frame) != tt.terminal {
				t.Errorf("terminal: %v", !tt.terminal)
			}
		})
	}
}

// What velo's reader takes beside the canonical bytes. Of these only a TransportError is a
// terminal for the credit accounting.
func TestStreamFrameTolerance(t *testing.T) {
	for _, tt := range []struct {
		name, hex string
		kind      FrameKind
		body      string
	}{
		{"item by index", "81 00 2a", Item, "2a"},
		{"sender error by index", "81 01 a161", SenderError, "61"},
		{"dropped by index", "02", Dropped, ""},
		{"detached by index", "03", Detached, ""},
		{"finalized by index", "cc04", Finalized, ""},
		{"heartbeat by index", "cd0005", Heartbeat, ""},
		{"transport error by index", "81 06 a161", TransportError, "61"},
		{"str8 name", "d909 46696e616c697a6564", Finalized, ""},
		{"str8 item", "81 d904 4974656d 2a", Item, "2a"},
		{"bin name", "c407 44726f70706564", Dropped, ""},
		{"str8 text", "81 ae 5472616e73706f72744572726f72 d90161", TransportError, "61"},
		{"bytes after a unit", "a9 46696e616c697a6564 00", Finalized, ""},
		{"bytes after a text", "81 ae 5472616e73706f72744572726f72 a161 ff", TransportError, "61"},
		{"unit in a map", "81 a8 4465746163686564 c0", Detached, ""},
		{"heartbeat in a map16", "de0001 a9 486561727462656174 c0", Heartbeat, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			frame := unhex(t, tt.hex)
			kind, body, err := ParseStreamFrame(frame)
			if err != nil || kind != tt.kind {
				t.Errorf("read as %s, %v", kind, err)
			}
			equal(t, body, tt.body)
			if IsTerminal(frame) != (tt.kind == TransportError) {
				t.Error("a frame of other bytes passes for a terminal, or a transport error does not")
			}
		})
	}
}

func TestStreamFrameMalformed(t *testing.T) {
	for name, digits := range map[string]string{
		"empty":                "",
		"nil":                  "c0",
		"unknown name":         "a3 666f6f",
		"name cut":             "a9 46696e616c",
		"name not UTF-8":       "a1 ff",
		"index 7":              "07",
		"negative index":       "ff",
		"map of 0":             "80",
		"map of 2":             "82 a44974656d 01 a44974656d 02",
		"map cut":              "de00",
		"huge map":             "df ffffffff",
		"array":                "91 a44974656d",
		"item without a body":  "81a44974656d",
		"item outside a map":   "a44974656d",
		"error outside a map":  "ab 53656e6465724572726f72",
		"error without a text": "81 ae 5472616e73706f72744572726f72",
		"error of an int":      "81 ae 5472616e73706f72744572726f72 01",
		"text not UTF-8":       "81 ae 5472616e73706f72744572726f72 a1ff",
		"text cut":             "81 ae 5472616e73706f72744572726f72 dbffffffff",
		"unit with a body":     "81 a8 4465746163686564 01",
	} {
		t.Run(name, func(t *testing.T) {
			frame := unhex(t, digits)
			_, body, err := ParseStreamFrame(frame)
			if wantErr(t, err, ErrStreamFrame); body != nil || IsTerminal(frame) {
				t.Errorf("body %x", body)
			}
		})
	}
}

func TestItemBytes(t *testing.T) {
	for _, tt := range []struct{ name, hex, want string }{
		{"bin", "c403 01c8ff", "01c8ff"},
		{"empty bin", "c400", ""},
		{"str", "a26869", "6869"},
		{"str8", "d9026869", "6869"},
		{"ints", "93 01 ccc8 ccff", "01c8ff"},
		{"no ints", "90", ""},
		{"signed ints", "92 d007 cd00ff", "07ff"},
		{"bytes after it", "c401 01 ff", "01"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ItemBytes(unhex(t, tt.hex))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, got, tt.want)
		})
	}
	for name, digits := range map[string]string{
		"empty": "", "nil": "c0", "int": "2a", "bin cut": "c403 01", "str cut": "a2 68", "huge bin": "c6 ffffffff",
		"huge array": "dd ffffffff", "array cut": "92 01", "256": "91 cd0100", "negative": "91 ff", "text inside": "91 a0",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ItemBytes(unhex(t, digits))
			wantErr(t, err, ErrStreamFrame)
		})
	}
}

func TestItemBytesLen(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 65535, 65536, 1 << 20} {
		data := bytes.Repeat([]byte{7}, n)
		frame := AppendItemBytes(nil, data)
		if len(frame) != ItemBytesLen(n) {
			t.Errorf("%d bytes make a frame of %d, not %d", n, len(frame), ItemBytesLen(n))
		}
		_, body, err := ParseStreamFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ItemBytes(body); err != nil || !bytes.Equal(back, data) {
			t.Errorf("%d bytes came back as %d, %v", n, len(back), err)
		}
	}
}

func TestErrorKinds(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a Finalized with a text was written")
		}
	}()
	AppendError(nil, Finalized, "why")
}

func TestStreamAllocs(t *testing.T) {
	data := make([]byte, 160)
	frame := make([]byte, 0, ItemBytesLen(len(data)))
	noAllocs(t, "AppendItemBytes", func() { frame = AppendItemBytes(frame[:0], data) })
	failure := AppendError(nil, TransportError, "gone")
	noAllocs(t, "ParseStreamFrame", func() {
		for _, b := range [][]byte{frame, FrameFinalized, failure} {
			_, _, _ = ParseStreamFrame(b)
		}
	})
	noAllocs(t, "IsTerminal", func() { IsTerminal(frame); IsTerminal(FrameDropped); IsTerminal(FrameHeartbeat) })
	noAllocs(t, "ItemBytes", func() { _, _ = ItemBytes(frame[len(itemPrefix):]) })
}

func BenchmarkParseStreamFrame(b *testing.B) {
	frame := AppendItemBytes(nil, make([]byte, 160))
	b.ReportAllocs()
	for b.Loop() {
		_, body, _ := ParseStreamFrame(frame)
		if _, err := ItemBytes(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIsTerminal(b *testing.B) {
	frame := AppendItemBytes(nil, make([]byte, 160))
	b.ReportAllocs()
	for b.Loop() {
		IsTerminal(frame)
	}
}
