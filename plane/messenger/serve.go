// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// handler is what serves a name: on a goroutine of the pool, or now.
type handler struct {
	serve func(context.Context, *job) ([]byte, error)
	now   func(from wire.WorkerID, payload []byte)
	m     *handlerMetrics // nil: a handler of the node
}

// job is a message that waits to be served.
type job struct {
	conn    *transport.Conn // it came on
	line    *line
	from    wire.WorkerID
	kind    wire.Kind
	id      wire.ResponseID
	handler *handler // nil: there is none
	name    string   // if there is none
	headers []byte
	body    []byte
	staged  string // where the body is to be pulled from; empty: it is here
}

// serve runs a job of the handling pool and answers it.
func (m *Messenger) serve(j *job) {
	var result []byte
	var err error
	switch h := j.handler; {
	case h == nil:
		m.m.failed("dispatch", "unknown_handler")
		err = words(fmt.Sprintf("Handler '%s' not found", j.name))
	case h.now != nil:
		h.now(j.from, j.body)
	case h.m != nil:
		h.m.inFlight.Inc()
		began := time.Now()
		result, err = m.guard(j)
		h.m.finished(j, result, err, time.Since(began))
	default:
		result, err = m.guard(j)
	}
	if j.kind == wire.FireAndForget {
		if err != nil {
			m.log.Debug("a handler failed", "from", uint64(j.from), "err", err)
		}
		return
	}
	m.answer(j, result, err)
}

// words is an error in velo's own words.
type words string

func (w words) Error() string { return string(w) }

func (h *handlerMetrics) finished(j *job, result []byte, err error, took time.Duration) {
	h.inFlight.Dec()
	outcome := 0
	if err != nil {
		outcome = 1
	}
	h.requests[j.kind][outcome].Inc()
	h.duration[j.kind][outcome].Observe(took.Seconds())
	h.requestBytes[j.kind].Add(float64(len(j.body)))
	h.responseBytes[j.kind][outcome].Add(float64(len(result)))
}

// guard runs a handler; one that panics has failed.
func (m *Messenger) guard(j *job) (result []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			m.m.failed("dispatch", "handler_panic")
			m.log.Error("a handler panicked", "panic", r, "stack", string(debug.Stack()))
			err = words("Handler failed: handler panicked")
		}
	}()
	return j.handler.serve(m.ctx, j)
}

// answer sends the answer by our own connection to the peer; where there is none to be
// had, by the one that the message came on, which velo reads since 0.9.
func (m *Messenger) answer(j *job, result []byte, err error) {
	if m.ctx.Err() != nil {
		return // what a handler says because it was told to end is no answer
	}
	reason := "unary"
	switch {
	case j.kind == wire.AckNack:
		reason = "ack_nack"
	case err != nil:
		reason = "unary_error"
	}
	frame, tooLarge := answerFrame(j, result, err)
	if tooLarge != nil {
		m.m.failed("response_send", reason)
		if frame, tooLarge = answerFrame(j, nil, tooLarge); tooLarge != nil {
			return
		}
	}
	l, unreached := m.way(j)
	if unreached == nil && l.conn.Send(m.ctx, frame) == nil {
		return
	}
	if j.conn.TrySend(frame) {
		return
	}
	m.m.failed("response_send", reason)
	j.conn.Transport().Reject(transport.RouteFailed)
	m.log.Debug("an answer could not be sent", "to", uint64(j.from), "err", unreached)
}

// way is our own connection to whom a job came from.
func (m *Messenger) way(j *job) (*line, error) {
	if !j.conn.Dialed() {
		p, err := m.find(m.ctx, j.from)
		if err != nil {
			return nil, err
		}
		return p.connect(m.ctx)
	}
	return j.line, nil
}

// maxErrorText bounds the text of an error that a peer is told, bytes.
const maxErrorText = 64 << 10

// answerFrame is the answer to a message that waits for one. A missing handler is told by
// an Ack frame to unary callers too, as velo does.
func answerFrame(j *job, result []byte, err error) ([]byte, error) {
	if err != nil {
		result = []byte(err.Error())
		result = result[:min(len(result), maxErrorText)]
	}
	if j.kind == wire.AckNack || j.handler == nil {
		header := wire.AppendAckHeader(nil, wire.AckHeader{ID: j.id, OK: err == nil})
		if err == nil {
			result = nil
		}
		return frameOf(wire.Ack, header, result)
	}
	header, bad := wire.AppendResponseHeader(nil, wire.ResponseHeader{ID: j.id, OK: err == nil})
	if bad != nil {
		return nil, bad
	}
	return frameOf(wire.Response, header, result)
}

func frameOf(t wire.FrameType, header, payload []byte) ([]byte, error) {
	if err := wire.CheckFrame(len(header), len(payload)); err != nil {
		return nil, err
	}
	b := make([]byte, 0, wire.PreambleLen+len(header)+len(payload))
	b = wire.AppendPreamble(b, t, len(header), len(payload))
	return append(append(b, header...), payload...), nil
}
