// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Metrics are velo's families of the transport, for all transports of a node.
type Metrics struct {
	frames, bytes, written, rejections, backpressure *prometheus.CounterVec
	queueWait, writeTime                             *prometheus.HistogramVec
	peers, connections                               *prometheus.GaugeVec
}

// NewMetrics makes the families and registers them with r, unless it is nil.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "velo_transport_" + name, Help: help},
			append([]string{"transport"}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "velo_transport_" + name, Help: help}, []string{"transport"})
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "velo_transport_" + name, Help: help,
			Buckets: []float64{0.0005, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5},
		}, []string{"transport"})
	}
	m := &Metrics{
		frames:       counter("frames_total", "Frames read, and frames given to a connection to write.", "direction", "message_type", "outcome"),
		bytes:        counter("frame_bytes_total", "Header and payload bytes of those frames.", "direction", "message_type"),
		written:      counter("frames_written_total", "Frames handed to the socket, counted when the write returned.", "message_type"),
		rejections:   counter("rejections_total", "Frames refused or dropped by the transport.", "reason"),
		backpressure: counter("send_backpressure_total", "Sends that found the connection's queue full and waited."),
		queueWait:    histogram("egress_queue_wait_seconds", "From the attempt to send until the writer took the frame."),
		writeTime:    histogram("write_duration_seconds", "Wall time of one write, which may carry many frames."),
		peers:        gauge("registered_peers", "Peers registered with the transport."),
		connections:  gauge("active_connections", "Live outbound connections."),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.frames, m.bytes, m.written, m.rejections, m.backpressure, m.queueWait, m.writeTime, m.peers, m.connections} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering the transport's metrics: %w: give each node its own registry", err)
		}
	}
	return m, nil
}

// Rejection is why a frame was refused or dropped, a value of the reason label.
type Rejection uint8

const (
	SendError       Rejection = iota // the connection ended before the frame was written
	DrainRejected                    // the node is draining
	DecodeError                      // the frame, or its header, is malformed
	RouteFailed                      // nobody takes it
	DrainReplyError                  // the answer that the node is draining could not be queued
	numRejections
)

var rejectionReasons = [numRejections]string{"send_error", "drain_rejected", "decode_error", "route_failed", "drain_reply_build_failed"}

const (
	inbound, outbound = 0, 1
	frameTypes        = int(wire.ShuttingDown) + 1
)

// bound is Metrics with the labels of one transport: no look-up per frame.
type bound struct {
	frames, bytes        [2][frameTypes]prometheus.Counter
	written              [frameTypes]prometheus.Counter
	rejections           [numRejections]prometheus.Counter
	backpressure         prometheus.Counter
	queueWait, writeTime prometheus.Observer
	peers, connections   prometheus.Gauge
}

func (m *Metrics) bind(transport string) *bound {
	b := &bound{
		backpressure: m.backpressure.WithLabelValues(transport),
		queueWait:    m.queueWait.WithLabelValues(transport),
		writeTime:    m.writeTime.WithLabelValues(transport),
		peers:        m.peers.WithLabelValues(transport),
		connections:  m.connections.WithLabelValues(transport),
	}
	for t := range frameTypes {
		word := wire.FrameType(t).String()
		for d, direction := range []string{"inbound", "outbound"} {
			b.frames[d][t] = m.frames.WithLabelValues(transport, direction, word, "accepted")
			b.bytes[d][t] = m.bytes.WithLabelValues(transport, direction, word)
		}
		b.written[t] = m.written.WithLabelValues(transport, word)
	}
	for i, reason := range rejectionReasons {
		b.rejections[i] = m.rejections.WithLabelValues(transport, reason)
	}
	return b
}

// tally adds up frames by type, to be counted once a read or write.
type tally [frameTypes]struct{ frames, bytes uint64 }

func (t *tally) add(kind wire.FrameType, bytes int) {
	t[kind].frames++
	t[kind].bytes += uint64(bytes)
}

// addAll adds the whole frames that follow each other in b, which this side made.
func (t *tally) addAll(b []byte) {
	for len(b) > 0 {
		p, err := wire.ParsePreamble(b)
		if err != nil {
			return
		}
		size := p.Header + p.Payload
		t.add(p.Type, size)
		b = b[min(wire.PreambleLen+size, len(b)):]
	}
}

func (t *tally) count(frames, bytes *[frameTypes]prometheus.Counter) {
	for i := range t {
		if t[i].frames == 0 {
			continue
		}
		frames[i].Add(float64(t[i].frames))
		if bytes != nil {
			bytes[i].Add(float64(t[i].bytes))
		}
	}
}

func (t *tally) merge(o *tally) {
	for i := range t {
		t[i].frames += o[i].frames
		t[i].bytes += o[i].bytes
	}
}

// seconds of nanoseconds.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }
