// SPDX-License-Identifier: Apache-2.0

package wire

import "math"

// canonical reads JSON that is exactly what velo and this package write: no blanks, the
// fields in their order, no escapes. An attach is on the way of every stream that has no
// ticket, and this takes a tenth of the time of encoding/json, which reads whatever differs.
type canonical struct {
	b  []byte
	no bool // it is not canonical
}

// newCanonical takes no body that encoding/json would not be given.
func newCanonical(b []byte) canonical { return canonical{b: b, no: len(b) > maxBody} }

// done says that all of it was read and was canonical.
func (c *canonical) done() bool { return !c.no && len(c.b) == 0 }

// skip reads s if it comes next, and says whether it did.
func (c *canonical) skip(s string) bool {
	if c.no || len(c.b) < len(s) || string(c.b[:len(s)]) != s {
		return false
	}
	c.b = c.b[len(s):]
	return true
}

// want reads s, which must come next.
func (c *canonical) want(s string) {
	if !c.skip(s) {
		c.no = true
	}
}

// uint reads s and then a number of at most limit.
func (c *canonical) uint(s string, limit uint64) (v uint64) {
	c.want(s)
	n := 0
	for ; n < len(c.b) && c.b[n]-'0' <= 9; n++ {
		d := uint64(c.b[n] - '0')
		if v > (limit-d)/10 || n > 0 && v == 0 { // too large; a leading zero
			c.no = true
			return 0
		}
		v = v*10 + d
	}
	if n == 0 {
		c.no = true
	}
	c.b = c.b[n:]
	return v
}

// text reads s and then a string of plain ASCII.
func (c *canonical) text(s string) string {
	c.want(s)
	c.want(`"`)
	for i, ch := range c.b {
		switch {
		case ch == '"':
			text := string(c.b[:i])
			c.b = c.b[i+1:]
			return text
		case ch < ' ' || ch == '\\' || ch >= 0x7f:
			c.no = true
			return ""
		}
	}
	c.no = true
	return ""
}

// handle reads s and then a Handle.
func (c *canonical) handle(s string) (h Handle) {
	c.want(s)
	h.Hi = WorkerID(c.uint(`{"hi":`, math.MaxUint64))
	h.Lo = c.uint(`,"lo":`, math.MaxUint64)
	c.want(`}`)
	return h
}

func canonicalAttachRequest(b []byte) (r AttachRequest, ok bool) {
	c := newCanonical(b)
	r.Handle = c.handle(`{"handle":`)
	r.SessionID = c.uint(`,"session_id":`, math.MaxUint64)
	r.CancelHandle = c.handle(`,"stream_cancel_handle":`)
	if c.skip(`,"supported_transport_keys":[`) {
		r.TransportKeys = []string{}
		for before := ""; !c.no && !c.skip("]"); before = "," {
			r.TransportKeys = append(r.TransportKeys, c.text(before))
		}
	}
	if c.skip(`,"lane_key":`) {
		key := c.uint("", math.MaxUint64)
		r.LaneKey = &key
	}
	c.want(`}`)
	return r, c.done()
}

func canonicalAttachAnswer(b []byte, mpsc bool) (a AttachAnswer, ok bool) {
	c := newCanonical(b)
	a.TransportKey = c.text(`{"Ok":{"streaming_transport_key":`)
	a.HeartbeatIntervalMS = c.uint(`,"heartbeat_interval_ms":`, math.MaxUint64)
	if mpsc {
		a.SenderID = c.uint(`,"sender_id":`, math.MaxUint64)
	}
	a.RoutingSessionID = c.uint(`,"routing_session_id":`, math.MaxUint64)
	a.InitialCredit = uint32(c.uint(`,"initial_credit":`, math.MaxUint32))
	a.SlotByteBudget = uint32(c.uint(`,"slot_byte_budget":`, math.MaxUint32))
	if c.skip(`,"lane":`) {
		a.Lane = uint16(c.uint("", math.MaxUint16))
	}
	c.want(`}}`)
	return a, c.done()
}
