// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"testing"
)

func TestPreamble(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    Preamble
		hex  string
	}{
		{"hello", Preamble{Message, 28, 204}, "0001 00 0000001c 000000cc"},
		{"its answer", Preamble{Response, 19, 15}, "0001 01 00000013 0000000f"},
		{"attach", Preamble{Message, 36, 165}, "0001 00 00000024 000000a5"},
		{"batch", Preamble{Message, 35, 45}, "0001 00 00000023 0000002d"},
		{"ack", Preamble{Ack, 17, 0}, "0001 02 00000011 00000000"},
		{"event", Preamble{Event, 17, 0}, "0001 03 00000011 00000000"},
		{"shutting down", Preamble{ShuttingDown, 28, 0}, "0001 04 0000001c 00000000"},
		{"empty", Preamble{Message, 0, 0}, "0001 00 00000000 00000000"},
		{"largest", Preamble{Message, 22, MaxFrame - 22}, "0001 00 00000016 00ffffea"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := CheckFrame(tt.p.Header, tt.p.Payload); err != nil {
				t.Error(err)
			}
			equal(t, AppendPreamble(nil, tt.p.Type, tt.p.Header, tt.p.Payload), tt.hex)
			if p, err := ParsePreamble(append(unhex(t, tt.hex), 1, 2, 3)); err != nil || p != tt.p {
				t.Errorf("read as %+v, %v", p, err)
			}
		})
	}
}

func TestPreambleMalformed(t *testing.T) {
	for _, tt := range []struct {
		name, hex string
		cause     error
	}{
		{"short", "0001 00 0000001c 000000", ErrShort},
		{"version 0", "0000 00 00000000 00000000", ErrVersion},
		{"version 2", "0002 00 00000000 00000000", ErrVersion},
		{"little-endian version", "0100 00 00000000 00000000", ErrVersion},
		{"type 5", "0001 05 00000000 00000000", ErrFrameType},
		{"one byte too many", "0001 00 00000001 01000000", ErrFrameSize},
		{"sum beyond 32 bits", "0001 00 ffffffff ffffffff", ErrFrameSize},
		{"sum wraps to 0", "0001 00 80000000 80000000", ErrFrameSize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParsePreamble(unhex(t, tt.hex))
			wantErr(t, err, tt.cause)
		})
	}
}

func TestCheckFrame(t *testing.T) {
	for _, n := range [][2]int{{1, MaxFrame}, {MaxFrame, 1}, {-1, 1}, {1, -1}, {math.MaxInt, math.MaxInt}} {
		wantErr(t, CheckFrame(n[0], n[1]), ErrFrameSize)
	}
	wantErr(t, CheckFrame(MaxFrame, 0), nil)
}

func TestWords(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{ShuttingDown.String(), "shutting_down"},
		{FrameType(9).String(), "unknown(9)"},
		{AckNack.String(), "ack_nack"},
		{Data.String(), "data"},
		{LifecycleSlot.String(), "lifecycle"},
		{ProtocolError.String(), "protocol_error"},
		{Cancel.String(), "cancel"},
		{TransportError.String(), "transport_error"},
		{Heartbeat.String(), "heartbeat"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}

func TestHandshake(t *testing.T) {
	b := AppendHandshake(nil, MPSCBit|1, 2)
	equal(t, b, "8000000000000001 0000000000000002")
	if anchor, session := ParseHandshake([HandshakeLen]byte(b)); anchor != MPSCBit|1 || session != 2 {
		t.Errorf("anchor %x, session %d", anchor, session)
	}
}

func TestPreambleAllocs(t *testing.T) {
	b := make([]byte, 0, PreambleLen)
	noAllocs(t, "AppendPreamble", func() { b = AppendPreamble(b[:0], Message, 35, 45) })
	noAllocs(t, "ParsePreamble", func() { _, _ = ParsePreamble(b) })
}
