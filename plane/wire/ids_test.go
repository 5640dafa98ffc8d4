// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestWorker(t *testing.T) {
	for id, want := range map[string]WorkerID{
		goNode:                                 goWorker,
		rustNode:                               rustWorker,
		"ffffffff-ffff-ffff-ffff-ffffffffffff": 8226423055709418259,
		"00000000-0000-0000-0000-000000000000": 15034821391391295848,
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF": 8226423055709418259,
	} {
		parsed, err := ParseInstanceID(id)
		if err != nil || parsed.Worker() != want {
			t.Errorf("%s: worker %d, %v, want %d", id, parsed.Worker(), err, want)
		}
		if parsed.String() != strings.ToLower(id) {
			t.Errorf("%s prints as %s", id, parsed)
		}
	}
}

func TestNewInstanceID(t *testing.T) {
	a, b := NewInstanceID(), NewInstanceID()
	if a == b || a.Worker() == 0 {
		t.Errorf("%s and %s", a, b)
	}
	if a[6]>>4 != 4 || a[8]>>6 != 2 {
		t.Errorf("%s is no UUID v4", a)
	}
}

func TestInstanceIDText(t *testing.T) {
	var id InstanceID
	if err := json.Unmarshal([]byte(`"`+goNode+`"`), &id); err != nil || id.Worker() != goWorker {
		t.Fatalf("%s, %v", id, err)
	}
	if b, err := json.Marshal(id); err != nil || string(b) != `"`+goNode+`"` {
		t.Errorf("%s, %v", b, err)
	}
	for name, bad := range map[string]string{
		"empty": "", "no hyphens": strings.ReplaceAll(goNode, "-", ""), "braces": "{" + goNode + "}",
		"URN": "urn:uuid:" + goNode, "a letter": "g" + goNode[1:], "a hyphen moved": goNode[:7] + "-3" + goNode[9:],
	} {
		before := id
		if err := id.UnmarshalText([]byte(bad)); !errors.Is(err, ErrBody) || id != before {
			t.Errorf("%s: %v, %s", name, err, id)
		}
	}
}

func TestHandle(t *testing.T) {
	for _, tt := range []struct {
		name   string
		h      Handle
		text   string
		json   string
		packed string
	}{
		{"spsc", Handle{rustWorker, 1}, "StreamAnchorHandle(worker=9143905968562085142, local=1, kind=spsc)", `{"hi":9143905968562085142,"lo":1}`, "92 cf7ee5ae082bb79d16 01"},
		{"mpsc", Handle{goWorker, MPSCBit | 7}, "StreamAnchorHandle(worker=14225989560148541334, local=7, kind=mpsc)", `{"hi":14225989560148541334,"lo":9223372036854775815}`, "92 cfc56cde21e711bf96 cf8000000000000007"},
		{"largest", Handle{math.MaxUint64, math.MaxUint64}, "StreamAnchorHandle(worker=18446744073709551615, local=9223372036854775807, kind=mpsc)", `{"hi":18446744073709551615,"lo":18446744073709551615}`, "92 cfffffffffffffffff cfffffffffffffffff"},
		{"zero", Handle{}, "StreamAnchorHandle(worker=0, local=0, kind=spsc)", `{"hi":0,"lo":0}`, "92 00 00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.h.String() != tt.text {
				t.Errorf("prints %s, want %s", tt.h, tt.text)
			}
			if b := encode(tt.h); string(b) != tt.json {
				t.Errorf("JSON %s, want %s", b, tt.json)
			}
			var back Handle
			if err := json.Unmarshal([]byte(tt.json), &back); err != nil || back != tt.h {
				t.Errorf("JSON read as %v, %v", back, err)
			}
			equal(t, tt.h.AppendMsgpack(nil), tt.packed)
			back, rest, err := ParseHandleMsgpack(append(unhex(t, tt.packed), 0xc0))
			if err != nil || back != tt.h || len(rest) != 1 {
				t.Errorf("msgpack read as %v, %x, %v", back, rest, err)
			}
		})
	}
}

// Both halves may come as cf: a reader takes any width.
func TestHandleMsgpackWide(t *testing.T) {
	h, _, err := ParseHandleMsgpack(unhex(t, "92 cf7ee5ae082bb79d16 cf0000000000000001"))
	if err != nil || h != (Handle{rustWorker, 1}) {
		t.Errorf("%v, %v", h, err)
	}
}

func TestHandleMalformed(t *testing.T) {
	for _, body := range []string{
		``, `null`, `[1,2]`, `{}`, `{"hi":1}`, `{"lo":1}`, `{"hi":1,"lo":null}`, `{"hi":-1,"lo":1}`, `{"hi":1.0,"lo":1}`,
		`{"hi":1e3,"lo":1}`, `{"hi":"1","lo":1}`, `{"hi":18446744073709551616,"lo":1}`, `{"HI":1,"lo":1}`,
	} {
		var h Handle
		if err := h.UnmarshalJSON([]byte(body)); err == nil {
			t.Errorf("%s was read as %v", body, h)
		} else {
			wantErr(t, err, ErrBody)
		}
	}
	for _, packed := range []string{"", "91 01", "93 01 02 03", "92 01", "92", "92 a0 01", "92 01 ff", "c0", "82 a26869 01 a26c6f 01"} {
		_, _, err := ParseHandleMsgpack(unhex(t, packed))
		wantErr(t, err, ErrBody)
	}
}
