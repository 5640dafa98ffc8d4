// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"
)

// Each target holds that what decodes, and is encoded again, decodes to the same; and what
// the decoder promises beyond that.

// seed adds the protocol's byte vectors, as digits.
func seed(f *testing.F, digits ...string) {
	f.Helper()
	for _, s := range digits {
		f.Add(unhex(f, s))
	}
}

func FuzzPreamble(f *testing.F) {
	seed(f, "0001 00 0000001c 000000cc", "0001 04 0000001c 00000000", "0001 05 00000000 00000000", "0001 00 ffffffff ffffffff", "00")
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePreamble(b)
		if err != nil {
			return
		}
		if again := AppendPreamble(nil, p.Type, p.Header, p.Payload); !bytes.Equal(again, b[:PreambleLen]) {
			t.Errorf("%x became %x", b[:PreambleLen], again)
		}
		if err := CheckFrame(p.Header, p.Payload); err != nil {
			t.Errorf("a frame that must not be sent was read: %v", err)
		}
	})
}

func FuzzMessageHeader(f *testing.F) {
	seed(f, helloHeader, attachHeader, batchMessage, "01 00 0100000000000000 0000000000000000 0100 68 0d00 82 a35f7276 a23132 a162 a2c3bc")
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseMessageHeader(b)
		if err != nil {
			return
		}
		again, err := AppendMessageHeader(nil, h.Kind, h.ID, string(h.Handler), h.Headers)
		if err != nil || !bytes.HasPrefix(b, again) {
			t.Fatalf("%x became %x, %v", b, again, err)
		}
		if back, err := ParseMessageHeader(again); err != nil || !reflect.DeepEqual(back, h) {
			t.Errorf("%+v became %+v, %v", h, back, err)
		}
		sameHeaders(t, h.Headers)
	})
}

// sameHeaders holds that every header that was accepted can be found and written again.
func sameHeaders(t *testing.T, headers []byte) {
	t.Helper()
	if headers == nil {
		return
	}
	kv := map[string]string{}
	if err := walkHeaders(headers, func(k, v []byte) { kv[string(k)] = string(v) }); err != nil {
		t.Fatal(err)
	}
	for key, want := range kv {
		if got, ok := LookupHeader(headers, key); !ok || got != want {
			t.Errorf("header %q is %q, %v, want %q", key, got, ok, want)
		}
	}
	again, err := AppendHeaders(nil, kv)
	if err != nil {
		return // a value or a map that is read but not written, for its length
	}
	back := map[string]string{}
	if err := walkHeaders(again, func(k, v []byte) { back[string(k)] = string(v) }); err != nil || !maps.Equal(back, kv) {
		t.Errorf("%d headers became %d, %v", len(kv), len(back), err)
	}
}

func FuzzResponseHeader(f *testing.F) {
	seed(f, "96bf11e721de6cc5 0000 010000000000 00 0000", "96bf11e721de6cc5 0000 010000000000 01 0100 80", "96bf11e721de6cc5 0000 010000000000 07 0500 81 a161 a162")
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseResponseHeader(b)
		if err != nil {
			return
		}
		again, err := AppendResponseHeader(nil, h)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseResponseHeader(again); err != nil || !reflect.DeepEqual(back, h) {
			t.Errorf("%+v became %+v, %v", h, back, err)
		}
		sameHeaders(t, h.Headers)
	})
}

func FuzzAckHeader(f *testing.F) {
	seed(f, "00 96bf11e721de6cc5 0000 010000000000", "03 96bf11e721de6cc5 0000 010000000000", "04 96bf11e721de6cc5 0000 010000000000")
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseAckHeader(b)
		if err != nil {
			return
		}
		if again := AppendAckHeader(nil, h); !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

func FuzzBatch(f *testing.F) {
	seed(f, openBatch, dataBatch, creditBatch, finalBatch,
		"02 00 0001 0000000000000002 00000003  05 00000102 00000000 00000009 0000000000000005 01",
		"01 00 0002 0000000000000001 00000000  00 00000000 00000001 00000001 c0  00 00000000 00000002 ffffffff c0",
		"01 00 0002 0000000000000001 00000000  00 00000000 00000001 00000001 c0  02 00000000 00000002 00000001 04",
		"03 00 0001 0000000000000007 00000000")
	f.Fuzz(func(t *testing.T, b []byte) {
		h, records, err := walk(b)
		if len(b) < BatchHeaderLen {
			if !errors.Is(err, ErrShort) {
				t.Errorf("%d bytes: %v", len(b), err)
			}
			return
		}
		if len(records) > int(h.Count) || err == nil && len(records) != int(h.Count) {
			t.Errorf("%d records of %d, %v", len(records), h.Count, err)
		}
		// What was good is the batch's beginning, and a good batch of its own.
		h.Count = uint16(len(records))
		again := AppendBatchHeader(nil, h)
		for i := range records {
			rec := &records[i]
			again = AppendRecord(again, rec)
			parseBody(t, rec)
		}
		if !bytes.HasPrefix(b[BatchHeaderLen:], again[BatchHeaderLen:]) {
			t.Fatalf("%x became %x", b, again)
		}
		if err == nil && len(again) != len(b) {
			t.Errorf("a good batch of %d bytes became %d", len(b), len(again))
		}
		back, same, err2 := walk(again)
		if back != h || !reflect.DeepEqual(same, records) || err2 != nil && !errors.Is(err2, ErrVersion) {
			t.Errorf("%+v with %d records became %+v with %d, %v", h, len(records), back, len(same), err2)
		}
	})
}

// parseBody holds that a control record written again from its parts is the same.
func parseBody(t *testing.T, rec *Record) {
	t.Helper()
	var again []byte
	switch rec.Type {
	case OpenSlot:
		anchor, session := ParseOpen(rec.Body)
		again = AppendOpen(nil, rec.Slot, 0, anchor, session)
	case CloseSlot:
		again = AppendClose(nil, rec.Slot, 0, ParseClose(rec.Body))
	case CreditUpdate:
		again = AppendCredit(nil, rec.Slot, ParseCredit(rec.Body))
	case LifecycleSlot:
		session, action := ParseLifecycle(rec.Body)
		again = AppendLifecycle(nil, rec.Slot, session, action)
	default:
		return
	}
	if !bytes.Equal(again[RecordHeaderLen:], rec.Body) {
		t.Errorf("a %s of %x became %x", rec.Type, rec.Body, again[RecordHeaderLen:])
	}
}

func FuzzStreamFrame(f *testing.F) {
	seed(f, "81a44974656da568656c6c6f", "81a44974656dcd012c", "81a44974656d9301ccc8ccff", "81a44974656dc403010203",
		"81ab53656e6465724572726f72a26e6f", "81ae5472616e73706f72744572726f72a0", "a744726f70706564", "a84465746163686564",
		"a946696e616c697a6564", "a9486561727462656174", "8100 2a", "04", "81 a8 4465746163686564 c0")
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, err := ParseStreamFrame(b)
		if err != nil {
			if body != nil || IsTerminal(b) {
				t.Errorf("an undecodable frame has the body %x", body)
			}
			return
		}
		var again []byte
		terminal := true
		switch kind {
		case Item:
			again, terminal = AppendItem(nil, body), false
			itemBytes(t, body)
		case SenderError:
			again, terminal = AppendError(nil, kind, string(body)), false
		case TransportError:
			again = AppendError(nil, kind, string(body))
		case Dropped:
			again = FrameDropped
		case Detached:
			again = FrameDetached
		case Finalized:
			again = FrameFinalized
		case Heartbeat:
			again, terminal = FrameHeartbeat, false
		}
		back, same, err := ParseStreamFrame(again)
		if err != nil || back != kind || !bytes.Equal(same, body) {
			t.Errorf("%s of %x became %s of %x, %v", kind, body, back, same, err)
		}
		if IsTerminal(again) != terminal || IsTerminal(b) && !terminal {
			t.Errorf("a %s is a terminal: %v", kind, !terminal)
		}
	})
}

// itemBytes holds that bytes are the same whichever way they were written.
func itemBytes(t *testing.T, body []byte) {
	t.Helper()
	data, err := ItemBytes(body)
	if err != nil {
		return
	}
	frame := AppendItemBytes(nil, data)
	if len(frame) != ItemBytesLen(len(data)) {
		t.Errorf("a frame of %d bytes, not %d", len(frame), ItemBytesLen(len(data)))
	}
	for _, again := range [][]byte{frame[len(itemPrefix):], appendInts(nil, data)} {
		if back, err := ItemBytes(again); err != nil || !bytes.Equal(back, data) {
			t.Errorf("%x became %x, %v", data, back, err)
		}
	}
}

func FuzzHandle(f *testing.F) {
	seed(f, "92 cf7ee5ae082bb79d16 01", "92 cfc56cde21e711bf96 cf8000000000000007", "93 01 02 03")
	f.Fuzz(func(t *testing.T, b []byte) {
		h, _, err := ParseHandleMsgpack(b)
		if err != nil {
			return
		}
		if back, rest, err := ParseHandleMsgpack(h.AppendMsgpack(nil)); err != nil || back != h || len(rest) != 0 {
			t.Errorf("%s became %s, %x, %v", h, back, rest, err)
		}
		sameJSON(t, h)
		if back, err := ParseDataHandle(DataHandle(h).String()); err != nil || back != DataHandle(h) {
			t.Errorf("%s became %s, %v", DataHandle(h), back, err)
		}
	})
}

func FuzzDataHandle(f *testing.F) {
	for _, s := range []string{"0", "1", "168675293236130041682255136074835689473", "340282366920938463463374607431768211456", "-1", "+1", "1_0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseDataHandle(s)
		if err != nil {
			return
		}
		if back, err := ParseDataHandle(h.String()); err != nil || back != h {
			t.Errorf("%s became %s, %v", s, back, err)
		}
	})
}

func FuzzInstanceID(f *testing.F) {
	for _, s := range []string{goNode, rustNode, "{" + goNode + "}", "urn:uuid:" + goNode, ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseInstanceID(s)
		if err != nil {
			return
		}
		if back, err := ParseInstanceID(id.String()); err != nil || back != id || len(s) != 36 {
			t.Errorf("%q became %s, %v", s, back, err)
		}
	})
}

func FuzzAddress(f *testing.F) {
	seed(f, addressHex, "80", "81 a3746370 c40101", "83 a3746370 9101 a3756473 9102 a3746370 9103", "81 a174 dd ffffffff")
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := Address(b).Entries()
		if err != nil {
			return
		}
		if len(entries) > maxEntries {
			t.Errorf("%d entries", len(entries))
		}
		again := NewAddress(entries)
		if len(again) > maxAddress {
			return // bin entries are shorter than arrays
		}
		if back, err := again.Entries(); err != nil || !maps.EqualFunc(back, entries, bytes.Equal) {
			t.Errorf("%v became %v, %v", entries, back, err)
		}
		sameJSON(t, Address(b))
	})
}

func FuzzEndpoints(f *testing.F) {
	seed(f, endpointHex, "9195a465746830a831302e302e302e35cd9c401801", "92 95 a0 a165 01 20 c0 95 a0 a93132372e302e302e31 cd15b3 20 fe")
	for _, s := range []string{"tcp://127.0.0.1:5555", "grpc://[::1]:1", "localhost:1", "uds:///run/velo.sock", "/run/velo.sock"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if path, err := ParseUnixEntry(b); err == nil {
			if back, err := ParseUnixEntry(UnixEntry(path)); err != nil || back != path {
				t.Errorf("%q became %q, %v", path, back, err)
			}
		}
		list, err := ParseEndpoints(b)
		if err != nil {
			return
		}
		if len(list) == 0 || len(list) > maxEndpoints {
			t.Errorf("%d endpoints", len(list))
		}
		if back, err := ParseEndpoints(AppendEndpoints(nil, list)); err != nil || !slices.Equal(back, list) {
			t.Errorf("%+v became %+v, %v", list, back, err)
		}
	})
}

// sameJSON holds that a value written as JSON reads back as it was.
func sameJSON[T any](t *testing.T, v T) {
	t.Helper()
	b := encode(v)
	var back T
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatalf("%s cannot be read: %v", b, err)
	}
	if again := encode(back); !bytes.Equal(again, b) {
		t.Errorf("%s became %s", b, again)
	}
}

// fuzzJSON is the body of a target whose decoder is json.Unmarshal.
func fuzzJSON[T any](t *testing.T, b []byte) {
	t.Helper()
	var v T
	if err := json.Unmarshal(b, &v); err == nil {
		sameJSON(t, v)
	}
}

func FuzzPeerInfo(f *testing.F) {
	for _, s := range []string{
		helloBody, helloBody[13 : len(helloBody)-1], `{"instance_id":"` + goNode + `","worker_address":"a"}`,
		`{"handlers":["_hello"]}`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzJSON[PeerInfo](t, b)
		fuzzJSON[HelloRequest](t, b)
		fuzzJSON[HandlersAnswer](t, b)
	})
}

func FuzzTicket(f *testing.F) {
	seed(f, "95 b06d657373656e6765722d6d75782d7632 cd1388 07 20 ce00100000", "96 a178 01 02 03 04 03")
	f.Add([]byte(`{"streaming_transport_key":"messenger-mux-v2","heartbeat_interval_ms":5000,"routing_session_id":7,"initial_credit":32,"slot_byte_budget":1048576,"lane":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzJSON[Ticket](t, b)
		ticket, _, err := ParseTicketMsgpack(b)
		if err != nil {
			return
		}
		if back, rest, err := ParseTicketMsgpack(ticket.AppendMsgpack(nil)); err != nil || back != ticket || len(rest) != 0 {
			t.Errorf("%+v became %+v, %x, %v", ticket, back, rest, err)
		}
		sameJSON(t, ticket)
	})
}

func FuzzAttach(f *testing.F) {
	for _, s := range []string{
		attachBody, okBody, string(EncodeAttachError("anchor not found")), `{"Ok":{"streaming_transport_key":"tcp-stream"}}`,
		`{"Ok":{"streaming_transport_key":"messenger-mux-v2","heartbeat_interval_ms":1,"sender_id":2,"lane":3}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzJSON[AttachRequest](t, b)
		sameRequest(t, b)
		for _, mpsc := range []bool{false, true} {
			sameAnswer(t, b, mpsc)
			a, err := ParseAttachAnswer(b, mpsc)
			if refused := (*AttachError)(nil); errors.As(err, &refused) {
				_, again := ParseAttachAnswer(EncodeAttachError(refused.Reason), mpsc)
				if !reflect.DeepEqual(again, err) {
					t.Errorf("%v became %v", err, again)
				}
			}
			if err != nil || mpsc && a.SenderID == 0 {
				continue // velo counts senders from 1
			}
			if !mpsc {
				a.SenderID = 0
			}
			if back, err := ParseAttachAnswer(EncodeAttachAnswer(a, mpsc), mpsc); err != nil || *back != *a {
				t.Errorf("%+v became %+v, %v", a, back, err)
			}
		}
	})
}

func FuzzControl(f *testing.F) {
	for _, s := range []string{
		`{"handle":` + handleJSON + `,"sender_id":3}`, `{"handle":` + handleJSON + `,"stream_cancel_handle":` + cancelJSON + `}`,
		`{"sender_stream_id":1}`, `[{"handle":` + handleJSON + `,"session":2}]`, `{"a":"\"sender_stream_id\":5,\\","sender_stream_id" : 7 }`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzJSON[HandleRequest](t, b)
		fuzzJSON[AbortAttachRequest](t, b)
		fuzzJSON[DetachSenderRequest](t, b)
		fuzzJSON[CancelRequest](t, b)
		list, err := ParseRenewRequest(b)
		if err != nil {
			return
		}
		if back, err := ParseRenewRequest(encode(list)); err != nil || !reflect.DeepEqual(back, list) {
			t.Errorf("%+v became %+v, %v", list, back, err)
		}
	})
}

func FuzzRendezvous(f *testing.F) {
	for _, s := range []string{
		string(EncodeAcquireAnswer(&AcquireAnswer{1, 2, 400_000, 524288, 1})), `{"handle":` + handleJSON + `,"lease_id":4}`,
		`{"transfer_id":2,"chunk_index":3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzJSON[AcquireRequest](t, b)
		fuzzJSON[PullRequest](t, b)
		fuzzJSON[ReleaseRequest](t, b)
		a, err := ParseAcquireAnswer(b)
		if err != nil {
			return
		}
		if back, err := ParseAcquireAnswer(EncodeAcquireAnswer(a)); err != nil || *back != *a {
			t.Errorf("%+v became %+v, %v", a, back, err)
		}
	})
}

// FuzzFields compares the search for a field with encoding/json's own.
func FuzzFields(f *testing.F) {
	f.Add([]byte(`{"a":"\"b\":5,\\","b" : 7 }`), "b")
	f.Add([]byte(`{"a":{"b":1},"c":["b",{}],"d":null}`), "b")
	f.Add([]byte(`{"a":"b","b":null}`), "b")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(b, &fields) != nil || fields == nil || bytes.ContainsAny(b, `\`) || !utf8.Valid(b) {
			return
		}
		value, ok := fields[key]
		// Of a field given twice any value counts for the one and the last for the other.
		if got, want := has(b, key), ok && string(value) != "null"; got != want && bytes.Count(b, []byte(key)) < 2 {
			t.Errorf("%s has %q: %v, want %v", b, key, got, want)
		}
	})
}
