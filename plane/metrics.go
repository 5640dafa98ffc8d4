// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// metrics are velo's families of anchors and of streams with a connection of their own.
type metrics struct {
	Reaped, Flushes, Frames prometheus.Counter
	ServerFull              prometheus.Counter

	opened     map[string]bound // good opens, by scheme: there is one a stream
	operations *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	attachRTT  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, active func() float64) *metrics {
	const p = "velo_streaming_"
	counter := func(name, help string) prometheus.Counter {
		return register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: p + name, Help: help}))
	}
	register(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: p + "active_anchors", Help: "Anchors of this node."}, active))
	operation := []string{"operation", "outcome", "transport_scheme"}
	m := &metrics{
		opened:     map[string]bound{},
		Reaped:     counter("unclaimed_bind_reaped_total", "Tickets and granted attaches whose stream did not come in time."),
		Flushes:    counter("egress_flushes_total", "Writes of streams with a connection of their own."),
		Frames:     counter("frames_written_total", "Stream frames in those writes."),
		ServerFull: counter("server_pump_backpressure_total", "Reads of such streams that waited for their consumer."),
		operations: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: p + "anchor_operations_total", Help: "Control operations on anchors.",
		}, operation)),
		durations: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: p + "anchor_operation_duration_seconds", Help: "Duration of those operations.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, operation)),
		attachRTT: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: p + "anchor_attach_rtt_seconds", Help: "Round trip of an attach as its sender saw it.",
			Buckets: []float64{0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10},
		}, []string{"outcome", "transport_scheme"})),
	}
	for _, scheme := range []string{wire.KeyV1, wire.KeyV2, wire.KeyTCPStream, local} {
		m.opened[scheme] = m.bind("open", scheme, nil)
	}
	return m
}

// local is the scheme of streams on one node, and of operations without a transport.
const local = "velo"

func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r != nil {
		r.MustRegister(c)
	}
	return c
}

func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

// bound are the two families of one set of labels.
type bound struct {
	n    prometheus.Counter
	took prometheus.Observer
}

func (m *metrics) bind(name, scheme string, err error) bound {
	return bound{m.operations.WithLabelValues(name, outcome(err), scheme), m.durations.WithLabelValues(name, outcome(err), scheme)}
}

// open counts a stream that a producer began.
func (m *metrics) open(scheme string, begun time.Time, err error) {
	b, ok := m.opened[scheme]
	if !ok || err != nil {
		b = m.bind("open", scheme, err)
	}
	b.n.Inc()
	b.took.Observe(time.Since(begun).Seconds())
}

// operation counts a control operation that began at a time.
func (m *metrics) operation(name, scheme string, begun time.Time, err error) {
	b := m.bind(name, scheme, err)
	b.n.Inc()
	b.took.Observe(time.Since(begun).Seconds())
}
