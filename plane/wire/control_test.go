// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

var (
	anchorHandle = Handle{Hi: rustWorker, Lo: 1}
	cancelHandle = Handle{Hi: goWorker, Lo: 1}
)

const (
	handleJSON = `{"hi":9143905968562085142,"lo":1}`
	cancelJSON = `{"hi":14225989560148541334,"lo":1}`

	attachBody = `{"handle":` + handleJSON + `,"session_id":1,"stream_cancel_handle":` + cancelJSON + `,"supported_transport_keys":["messenger-mux-v1"]}`
	okBody     = `{"Ok":{"streaming_transport_key":"messenger-mux-v1","heartbeat_interval_ms":5000,"routing_session_id":1,"initial_credit":256,"slot_byte_budget":1048576}}`
)

func ptr[T any](v T) *T { return &v }

// Each body is written as given, reads back as it was, and does not read without any one of
// its required fields, nor with one of them null.
func TestBodies(t *testing.T) {
	for _, tt := range []struct {
		name     string
		value    any
		body     string
		required string
	}{
		{"attach", AttachRequest{anchorHandle, 1, cancelHandle, []string{KeyV1}, nil}, attachBody, "handle session_id stream_cancel_handle"},
		{
			"attach with nothing else",
			AttachRequest{Handle: anchorHandle, CancelHandle: cancelHandle, LaneKey: ptr(uint64(0))},
			`{"handle":` + handleJSON + `,"session_id":0,"stream_cancel_handle":` + cancelJSON + `,"lane_key":0}`,
			"handle session_id stream_cancel_handle",
		},
		{"anchor", HandleRequest{anchorHandle}, `{"handle":` + handleJSON + `}`, "handle"},
		{"abort", AbortAttachRequest{anchorHandle, cancelHandle}, `{"handle":` + handleJSON + `,"stream_cancel_handle":` + cancelJSON + `}`, "handle stream_cancel_handle"},
		{"detach sender", DetachSenderRequest{anchorHandle, 3}, `{"handle":` + handleJSON + `,"sender_id":3}`, "handle sender_id"},
		{"cancel", CancelRequest{1}, `{"sender_stream_id":1}`, "sender_stream_id"},
		{"handlers", HandlersAnswer{[]string{"_hello", "x"}}, `{"handlers":["_hello","x"]}`, "handlers"},
		{"ticket", Ticket{KeyV2, 5000, 7, 32, 1 << 20, 0}, `{"streaming_transport_key":"messenger-mux-v2","heartbeat_interval_ms":5000,"routing_session_id":7,"initial_credit":32,"slot_byte_budget":1048576}`, "streaming_transport_key heartbeat_interval_ms routing_session_id initial_credit slot_byte_budget"},
		{"ticket with a lane", Ticket{KeyV2, 1, 2, 3, 4, 5}, `{"streaming_transport_key":"messenger-mux-v2","heartbeat_interval_ms":1,"routing_session_id":2,"initial_credit":3,"slot_byte_budget":4,"lane":5}`, "streaming_transport_key heartbeat_interval_ms routing_session_id initial_credit slot_byte_budget"},
		{"reservation", Reservation{anchorHandle, ptr(uint64(2))}, `{"handle":` + handleJSON + `,"session":2}`, "handle"},
		{"reservation without a ticket", Reservation{anchorHandle, nil}, `{"handle":` + handleJSON + `,"session":null}`, "handle"},
		{"acquire", AcquireRequest{DataHandle(anchorHandle)}, `{"handle":` + handleJSON + `}`, "handle"},
		{"pull", PullRequest{2, 3}, `{"transfer_id":2,"chunk_index":3}`, "transfer_id chunk_index"},
		{"release", ReleaseRequest{DataHandle(anchorHandle), 4}, `{"handle":` + handleJSON + `,"lease_id":4}`, "handle lease_id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if b := encode(tt.value); string(b) != tt.body {
				t.Errorf("written %s\nwant    %s", b, tt.body)
			}
			read := func(body string) (any, error) {
				v := reflect.New(reflect.TypeOf(tt.value))
				err := json.Unmarshal([]byte(body), v.Interface())
				return v.Elem().Interface(), err
			}
			if v, err := read(tt.body); err != nil || !reflect.DeepEqual(v, tt.value) {
				t.Errorf("read %+v, %v", v, err)
			}
			// Unknown fields and the order of fields do not matter.
			if v, err := read(`{"later":{"handle":[null]},` + strings.TrimPrefix(tt.body, "{")); err != nil || !reflect.DeepEqual(v, tt.value) {
				t.Errorf("with an unknown field: %+v, %v", v, err)
			}
			for _, field := range strings.Fields(tt.required) {
				for _, other := range []string{fmt.Sprintf("%q:null,\"x\":", field), fmt.Sprintf("\"x\":%q,\"y\":", field), `"` + strings.ToUpper(field) + `":`} {
					v, err := read(strings.Replace(tt.body, fmt.Sprintf("%q:", field), other, 1))
					if !errors.Is(err, ErrBody) {
						t.Errorf("without %s: %+v, %v", field, v, err)
					}
				}
			}
			for _, body := range []string{`[]`, `"x"`, `{}`, `1`} {
				if v, err := read(body); err == nil {
					t.Errorf("%s was read as %+v", body, v)
				}
			}
		})
	}
}

func TestNoHandlers(t *testing.T) {
	if b := encode(HandlersAnswer{}); string(b) != `{"handlers":[]}` {
		t.Errorf("written %s", b)
	}
}

func TestHello(t *testing.T) {
	wantErr(t, new(HelloRequest).UnmarshalJSON([]byte(`{}`)), ErrBody)
	wantErr(t, new(HelloRequest).UnmarshalJSON([]byte(`{"peer_info":{"instance_id":"`+goNode+`"}}`)), ErrBody)
}

// An escaped quote in a text must not hide or make a field.
func TestEscapes(t *testing.T) {
	const body = `{"a":"\"sender_stream_id\":5,\\","sender_stream_id" : 7 }`
	var r CancelRequest
	if err := r.UnmarshalJSON([]byte(body)); err != nil || r.SenderStreamID != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	wantErr(t, r.UnmarshalJSON([]byte(`{"a":"\"sender_stream_id\":5"}`)), ErrBody)
	wantErr(t, r.UnmarshalJSON([]byte(`{"a":{"sender_stream_id":5}}`)), ErrBody)
	wantErr(t, r.UnmarshalJSON([]byte(`{"sender_stream_id":"1"}`)), ErrBody)
}

func TestAttachAnswer(t *testing.T) {
	full := AttachAnswer{TransportKey: KeyV1, HeartbeatIntervalMS: 5000, RoutingSessionID: 1, InitialCredit: 256, SlotByteBudget: 1 << 20}
	laned := full
	laned.SenderID, laned.Lane = 2, 3
	for _, tt := range []struct {
		name   string
		mpsc   bool
		body   string
		answer AttachAnswer
		write  bool
	}{
		{"spsc", false, okBody, full, true},
		{"mpsc", true, `{"Ok":{"streaming_transport_key":"messenger-mux-v1","heartbeat_interval_ms":5000,"sender_id":2,"routing_session_id":1,"initial_credit":256,"slot_byte_budget":1048576,"lane":3}}`, laned, true},
		{"defaults", false, `{"Ok":{"streaming_transport_key":"tcp-stream"}}`, AttachAnswer{TransportKey: KeyTCPStream, HeartbeatIntervalMS: 5000}, false},
		{"mpsc defaults", true, `{"Ok":{"streaming_transport_key":"tcp-stream","heartbeat_interval_ms":1,"sender_id":1}}`, AttachAnswer{TransportKey: KeyTCPStream, HeartbeatIntervalMS: 1, SenderID: 1}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := ParseAttachAnswer([]byte(tt.body), tt.mpsc)
			if err != nil || *a != tt.answer {
				t.Errorf("read %+v, %v", a, err)
			}
			if b := EncodeAttachAnswer(&tt.answer, tt.mpsc); tt.write && string(b) != tt.body {
				t.Errorf("written %s\nwant    %s", b, tt.body)
			}
		})
	}
	if b := EncodeAttachAnswer(&laned, false); strings.Contains(string(b), "sender_id") || laned.SenderID != 2 {
		t.Errorf("an SPSC answer %s, and the caller's became %+v", b, laned)
	}
}

// The short way for what velo writes must agree with the long way, and must be taken.
func TestCanonical(t *testing.T) {
	laned := AttachAnswer{TransportKey: KeyV2, HeartbeatIntervalMS: 1, SenderID: 1<<64 - 1, RoutingSessionID: 1<<64 - 1, InitialCredit: 1<<32 - 1, SlotByteBudget: 1<<32 - 1, Lane: 1<<16 - 1}
	for _, body := range [][]byte{
		[]byte(attachBody), encode(AttachRequest{}), encode(AttachRequest{TransportKeys: []string{KeyV1, KeyV2}, LaneKey: ptr(uint64(1<<64 - 1))}),
		[]byte(`{"handle":` + handleJSON + `,"session_id":1,"stream_cancel_handle":` + cancelJSON + `,"supported_transport_keys":[],"lane_key":10}`),
	} {
		if sameRequest(t, body); !taken(canonicalAttachRequest(body)) {
			t.Errorf("%s is not canonical", body)
		}
	}
	for _, mpsc := range []bool{false, true} {
		for _, body := range [][]byte{EncodeAttachAnswer(&laned, mpsc), bytes.Replace(EncodeAttachAnswer(&laned, mpsc), []byte(`,"lane":65535`), nil, 1)} {
			if sameAnswer(t, body, mpsc); !taken(canonicalAttachAnswer(body, mpsc)) {
				t.Errorf("%s is not canonical", body)
			}
		}
	}
	for name, change := range map[string][2]string{
		"blank": {`:1,"stream`, `: 1,"stream`}, "leading zero": {`:1,"stream`, `:01,"stream`}, "zeros": {`:1,"stream`, `:00,"stream`},
		"2^64": {`:1,"stream`, `:18446744073709551616,"stream`}, "20 nines": {`:1,"stream`, `:99999999999999999999,"stream`},
		"float": {`:1,"stream`, `:1.0,"stream`}, "negative": {`:1,"stream`, `:-1,"stream`}, "no number": {`:1,"stream`, `:,"stream`},
		"escape": {`v1"`, `\u0076"`}, "not ASCII": {`v1"`, `é"`}, "control": {`v1"`, "\t\""}, "no end": {`v1"]}`, `v1`},
		"comma": {`v1"]`, `v1",]`}, "first comma": {`["mess`, `[,"mess`}, "no comma": {`v1"]`, `v1""x"]`},
		"more": {`v1"]}`, `v1"]}x`}, "unknown field": {`v1"]}`, `v1"],"x":1}`},
	} {
		body := []byte(strings.Replace(attachBody, change[0], change[1], 1))
		if sameRequest(t, body); taken(canonicalAttachRequest(body)) {
			t.Errorf("%s is canonical: %s", name, body)
		}
	}
	for _, body := range []string{
		`{"Ok":{"streaming_transport_key":"x","heartbeat_interval_ms":1,"routing_session_id":1,"initial_credit":4294967296,"slot_byte_budget":1}}`,
		`{"Ok":{"streaming_transport_key":"x","heartbeat_interval_ms":1,"routing_session_id":1,"initial_credit":1,"slot_byte_budget":1,"lane":65536}}`,
		`{"Ok":{"streaming_transport_key":"x`,
	} {
		if sameAnswer(t, []byte(body), false); taken(canonicalAttachAnswer([]byte(body), false)) {
			t.Errorf("%s is canonical", body)
		}
	}
}

func taken[T any](_ T, ok bool) bool { return ok }

// sameRequest holds that the short way reads nothing that encoding/json reads otherwise.
func sameRequest(t *testing.T, body []byte) {
	t.Helper()
	short, ok := canonicalAttachRequest(body)
	if !ok {
		return
	}
	type plain AttachRequest
	var long plain
	err := decode("attach request", body, &long, "handle", "session_id", "stream_cancel_handle")
	if err != nil || !reflect.DeepEqual(AttachRequest(long), short) {
		t.Errorf("%s is %+v or %+v, %v", body, short, long, err)
	}
}

func sameAnswer(t *testing.T, body []byte, mpsc bool) {
	t.Helper()
	short, ok := canonicalAttachAnswer(body, mpsc)
	if !ok {
		return
	}
	if long, err := parseAttachAnswer(body, mpsc); err != nil || *long != short {
		t.Errorf("%s is %+v or %+v, %v", body, short, long, err)
	}
}

func TestAttachRefused(t *testing.T) {
	reason := fmt.Sprintf("anchor %s not found", anchorHandle)
	body := EncodeAttachError(reason)
	if string(body) != `{"Err":{"reason":"`+reason+`"}}` {
		t.Errorf("written %s", body)
	}
	for _, mpsc := range []bool{false, true} {
		a, err := ParseAttachAnswer(body, mpsc)
		var refused *AttachError
		if !errors.As(err, &refused) || refused.Reason != reason || a != nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%+v, %v", a, err)
		}
	}
}

func TestAttachAnswerMalformed(t *testing.T) {
	for _, body := range []string{
		``, `null`, `{}`, `"Ok"`, `{"Ok":null}`, `{"Ok":{}}`, `{"Err":{}}`, `{"Err":null}`, `{"Err":"no"}`, `{"Later":{}}`,
		`{"Ok":{"streaming_transport_key":"tcp-stream"},"Err":{"reason":"no"}}`,
		`{"Ok":{"streaming_transport_key":null}}`,
		`{"Ok":{"streaming_transport_key":"x","initial_credit":4294967296}}`,
		`{"Ok":{"streaming_transport_key":"x","lane":65536}}`,
	} {
		a, err := ParseAttachAnswer([]byte(body), false)
		if wantErr(t, err, ErrBody); a != nil {
			t.Errorf("%s was read as %+v", body, a)
		}
	}
	for _, body := range []string{okBody, `{"Ok":{"streaming_transport_key":"x","sender_id":1}}`} {
		_, err := ParseAttachAnswer([]byte(body), true)
		wantErr(t, err, ErrBody)
	}
}

func TestRenew(t *testing.T) {
	list, err := ParseRenewRequest([]byte(`[{"handle":` + handleJSON + `,"session":2},{"handle":` + cancelJSON + `,"session":null}]`))
	if err != nil || !reflect.DeepEqual(list, []Reservation{{anchorHandle, ptr(uint64(2))}, {cancelHandle, nil}}) {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := ParseRenewRequest([]byte(`[]`)); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	for n, cause := range map[int]error{MaxReservations: nil, MaxReservations + 1: ErrBody} {
		_, err := ParseRenewRequest(encode(make([]Reservation, n)))
		wantErr(t, err, cause)
	}
	for _, body := range []string{``, `null`, `{}`, `[{}]`, `[1]`} {
		_, err := ParseRenewRequest([]byte(body))
		wantErr(t, err, ErrBody)
	}
}

func TestTicketMsgpack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ticket Ticket
		hex    string
	}{
		{"lane 0", Ticket{KeyV2, 5000, 7, 32, 1 << 20, 0}, "95 b06d657373656e6765722d6d75782d7632 cd1388 07 20 ce00100000"},
		{"lane 3", Ticket{"x", 1, 2, 3, 4, 3}, "96 a178 01 02 03 04 03"},
		{"extremes", Ticket{"", 1<<64 - 1, 1<<64 - 1, 1<<32 - 1, 1<<32 - 1, 65535}, "96 a0 cfffffffffffffffff cfffffffffffffffff ceffffffff ceffffffff cdffff"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, tt.ticket.AppendMsgpack(nil), tt.hex)
			back, rest, err := ParseTicketMsgpack(append(unhex(t, tt.hex), 1, 2))
			if err != nil || back != tt.ticket || len(rest) != 2 {
				t.Errorf("read %+v, %x, %v", back, rest, err)
			}
		})
	}
	for name, digits := range map[string]string{
		"empty": "", "not an array": "80", "4": "94 a0 01 02 03", "7": "97 a0 01 02 03 04 05 06", "key": "95 01 01 02 03 04",
		"heartbeat": "95 a0 a0 02 03 04", "session": "95 a0 01 a0 03 04", "credit": "95 a0 01 02 cf0000000100000000 04",
		"budget": "95 a0 01 02 03", "lane": "96 a0 01 02 03 04 ce00010000", "lane cut": "96 a0 01 02 03 04",
	} {
		t.Run(name, func(t *testing.T) {
			ticket, _, err := ParseTicketMsgpack(unhex(t, digits))
			if wantErr(t, err, ErrBody); ticket != (Ticket{}) {
				t.Errorf("read %+v", ticket)
			}
		})
	}
}

func TestDataHandle(t *testing.T) {
	for text, want := range map[string]DataHandle{
		"0": {},
		"1": {Lo: 1},
		"168675293236130041682255136074835689473": {Hi: rustWorker, Lo: 1},
		"340282366920938463463374607431768211455": {Hi: 1<<64 - 1, Lo: 1<<64 - 1},
	} {
		h, err := ParseDataHandle(text)
		if err != nil || h != want || h.String() != text {
			t.Errorf("%s: %d, %d, %s, %v", text, h.Hi, h.Lo, h, err)
		}
	}
	for _, text := range []string{"", "-1", "+1", "1.0", " 1", "0x1", "340282366920938463463374607431768211456", strings.Repeat("0", 40)} {
		_, err := ParseDataHandle(text)
		wantErr(t, err, ErrBody)
	}
}

func TestAcquireAnswer(t *testing.T) {
	a := AcquireAnswer{LeaseID: 1, TransferID: 2, TotalLen: 400_000, ChunkSize: 524288, ChunkCount: 1}
	body := EncodeAcquireAnswer(&a)
	if string(body) != `{"Ready":{"lease_id":1,"transfer_id":2,"total_len":400000,"chunk_size":524288,"chunk_count":1}}` {
		t.Errorf("written %s", body)
	}
	if back, err := ParseAcquireAnswer(body); err != nil || *back != a {
		t.Errorf("read %+v, %v", back, err)
	}
	for _, tt := range []struct {
		total       uint64
		size, count uint32
		cause       error
	}{
		{0, 524288, 0, nil},
		{0, 0, 0, nil},
		{524288, 524288, 1, nil},
		{524289, 524288, 2, nil},
		{524289, 524288, 1, ErrBody},
		{524288, 524288, 2, ErrBody},
		{0, 524288, 1, ErrBody},
		{1, 0, 1, ErrBody},
		{1, 1, 0, ErrBody},
		{1<<64 - 1, 1<<32 - 1, 1<<32 - 1, ErrBody},
	} {
		_, err := ParseAcquireAnswer(EncodeAcquireAnswer(&AcquireAnswer{TotalLen: tt.total, ChunkSize: tt.size, ChunkCount: tt.count}))
		wantErr(t, err, tt.cause)
	}
	for _, bad := range []string{``, `{}`, `{"Ready":null}`, `{"Ready":{}}`, `{"Rdma":{"lease_id":1,"descriptor":[]}}`} {
		_, err := ParseAcquireAnswer([]byte(bad))
		wantErr(t, err, ErrBody)
	}
}

func TestBodyTooLong(t *testing.T) {
	_, err := ParseAttachAnswer([]byte(`{"Ok":`+strings.Repeat(" ", maxBody)+`{"streaming_transport_key":"x"}}`), false)
	wantErr(t, err, ErrBody)
}

func TestAttachTooLong(t *testing.T) {
	keys := strings.Repeat(`"",`, maxBody/3) + `"x"`
	var r AttachRequest
	wantErr(t, r.UnmarshalJSON([]byte(strings.Replace(attachBody, `"`+KeyV1+`"`, keys, 1))), ErrBody)
}

func TestEncodePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a value that has no JSON was encoded")
		}
	}()
	encode(func() {})
}

func BenchmarkAttach(b *testing.B) {
	var r AttachRequest
	var a AttachAnswer
	for name, f := range map[string]func() error{
		"write request": func() error { _, err := json.Marshal(&r); return err },
		"read request":  func() error { return r.UnmarshalJSON([]byte(attachBody)) },
		"write answer":  func() error { EncodeAttachAnswer(&a, false); return nil },
		"read answer":   func() error { _, err := ParseAttachAnswer([]byte(okBody), false); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
