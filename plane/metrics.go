// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// metrics are velo's families of anchors and of streams with a connection of their own.
type metrics struct {
	Reaped, Flushes, Frames prometheus.Counter
	ServerFull              prometheus.Counter

	opened     map[string]bound // good opens, by scheme: there is one a stream
	openedHere prometheus.Counter
	operations *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	attachRTT  *prometheus.HistogramVec
}

// newMetrics makes the families and registers them with r, unless it is nil. active counts
// the anchors.
func newMetrics(r prometheus.Registerer, active func() float64) (*metrics, error) {
	const p = "velo_streaming_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: p + name, Help: help})
	}
	operation := []string{"operation", "outcome", "transport_scheme"}
	anchors := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: p + "active_anchors", Help: "Anchors of this node."}, active)
	m := &metrics{
		opened:     map[string]bound{},
		Reaped:     counter("unclaimed_bind_reaped_total", "Tickets and granted attaches whose stream did not come in time."),
		Flushes:    counter("egress_flushes_total", "Writes of streams with a connection of their own."),
		Frames:     counter("frames_written_total", "Stream frames in those writes."),
		ServerFull: counter("server_pump_backpressure_total", "Reads of such streams that waited for their consumer."),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: p + "anchor_operations_total", Help: "Control operations on anchors.",
		}, operation),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: p + "anchor_operation_duration_seconds", Help: "Duration of those operations.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, operation),
		attachRTT: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: p + "anchor_attach_rtt_seconds", Help: "Round trip of an attach as its sender saw it.",
			Buckets: []float64{0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10},
		}, []string{"outcome", "transport_scheme"}),
	}
	for _, scheme := range []string{wire.KeyV1, wire.KeyV2, wire.KeyTCPStream} {
		m.opened[scheme] = m.bind("open", scheme, nil)
	}
	m.openedHere = m.operations.WithLabelValues("open", outcome(nil), local)
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{anchors, m.Reaped, m.Flushes, m.Frames, m.ServerFull, m.operations, m.durations, m.attachRTT} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of streams: %w: give each node its own registry, or prometheus.WrapRegistererWith a label of its own", err)
		}
	}
	return m, nil
}

// local is the scheme of streams on one node, and of operations without a transport.
const local = "velo"

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

// open counts a stream to another node that a producer began.
func (m *metrics) open(scheme string, took time.Duration, err error) {
	b, ok := m.opened[scheme]
	if !ok || err != nil {
		b = m.bind("open", scheme, err)
	}
	b.add(took)
}

// openLocal counts a stream on this node. It has no duration: it waits for nobody, and to
// look at the clock would take longer.
func (m *metrics) openLocal(err error) {
	if err != nil {
		m.operations.WithLabelValues("open", outcome(err), "unknown").Inc()
		return
	}
	m.openedHere.Inc()
}

// operation counts a control operation.
func (m *metrics) operation(name, scheme string, took time.Duration, err error) {
	b := m.bind(name, scheme, err)
	b.add(took)
}

func (b *bound) add(took time.Duration) {
	b.n.Inc()
	b.took.Observe(took.Seconds())
}

// registration is a registry that remembers what was registered, for a node that then
// cannot start.
type registration struct {
	prometheus.Registerer
	done []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (r *registration) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if err == nil {
		r.done = append(r.done, c)
	}
	return err
}

func (r *registration) undo() {
	for _, c := range r.done {
		r.Unregister(c)
	}
}
