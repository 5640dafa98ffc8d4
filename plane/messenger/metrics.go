// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Metrics are velo's families of the messenger. Those of ordered lanes are not among
// them: here messages of one peer wait on no lane.
type Metrics struct {
	requests, requestBytes, responseBytes, failures, resolution *prometheus.CounterVec
	duration                                                    *prometheus.HistogramVec
	inFlight                                                    *prometheus.GaugeVec
	pending                                                     prometheus.Gauge
	exhausted, dequeued                                         prometheus.Counter
}

// NewMetrics makes the families and registers them with r, unless it is nil.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "velo_messenger_" + name, Help: help}
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(opts(name, help), labels)
	}
	m := &Metrics{
		requests:      vec("handler_requests_total", "Requests that an application's handler finished.", "handler", "response_type", "outcome"),
		requestBytes:  vec("handler_request_bytes_total", "Payload bytes of requests.", "handler", "response_type"),
		responseBytes: vec("handler_response_bytes_total", "Payload bytes of responses.", "handler", "response_type", "outcome"),
		failures:      vec("dispatch_failures_total", "Failures on the way to a handler or back from it.", "stage", "reason"),
		resolution:    vec("client_resolution_total", "How calls found their peer: directly, by handshake, by discovery, or not.", "path", "outcome"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "velo_messenger_handler_duration_seconds", Help: "Running time of a handler.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"handler", "response_type", "outcome"}),
		inFlight:  prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("handler_in_flight", "Handlers running now.")), []string{"handler"}),
		pending:   prometheus.NewGauge(prometheus.GaugeOpts(opts("pending_responses", "Callers waiting for a response."))),
		exhausted: prometheus.NewCounter(opts("response_slot_exhausted_total", "Calls that found the table of response slots full.")),
		dequeued:  prometheus.NewCounter(opts("inbound_dequeued_total", "Messages taken off the inbound queue.")),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.requestBytes, m.responseBytes, m.failures, m.resolution, m.duration, m.inFlight, m.pending, m.exhausted, m.dequeued} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering the messenger's metrics: %w: give each node its own registry", err)
		}
	}
	return m, nil
}

// failed counts what went wrong on the way to a handler or back; rare, so looked up.
func (m *Metrics) failed(stage, reason string) { m.failures.WithLabelValues(stage, reason).Inc() }

func (m *Metrics) resolved(path, outcome string) { m.resolution.WithLabelValues(path, outcome).Inc() }

const kinds = int(wire.Unary) + 1

// handlerMetrics are the series of one handler of the application.
type handlerMetrics struct {
	requests, responseBytes [kinds][2]prometheus.Counter
	requestBytes            [kinds]prometheus.Counter
	duration                [kinds][2]prometheus.Observer
	inFlight                prometheus.Gauge
}

// bind is nil for the handlers of the node itself, which velo does not show.
func (m *Metrics) bind(handler string) *handlerMetrics {
	if strings.HasPrefix(handler, "_") {
		return nil
	}
	b := &handlerMetrics{inFlight: m.inFlight.WithLabelValues(handler)}
	for k := range kinds {
		word := wire.Kind(k).String()
		b.requestBytes[k] = m.requestBytes.WithLabelValues(handler, word)
		for i, outcome := range []string{"success", "error"} {
			b.requests[k][i] = m.requests.WithLabelValues(handler, word, outcome)
			b.responseBytes[k][i] = m.responseBytes.WithLabelValues(handler, word, outcome)
			b.duration[k][i] = m.duration.WithLabelValues(handler, word, outcome)
		}
	}
	return b
}
