// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Metrics are velo's families of the mux, with velo's names, labels and buckets. They
// are told once a batch where that is possible; gauges are read when scraped.
type Metrics struct {
	LiveSlots, Held atomic.Int64
	staged          atomic.Pointer[func() int] // of the mux

	CreditExhausted, ProducerWaits                   prometheus.Counter
	GenerationMismatch, SeqGaps, HoldOverflow        prometheus.Counter
	ControlRefused, EpochDeaths, CreditReposted      prometheus.Counter
	DrainVisits, WatchdogFirings, Malformed          prometheus.Counter
	sentBatches, receivedBatches                     prometheus.Counter
	sentRecords, receivedRecords                     prometheus.Observer
	drops                                            [dropReasons]prometheus.Counter
	sentData, sentOpen, sentClose, sentCredit        prometheus.Counter
	sentLifecycle                                    prometheus.Counter
	wakesFrame, wakesOpen, wakesControl, wakesLinger prometheus.Counter
}

// NewMetrics makes the families and registers them with r, unless it is nil.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		all = append(all, c)
		return c
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		all = append(all, c)
		return c
	}
	gauge := func(name, help string, read func() float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	const mux = "velo_streaming_mux_"
	gauge(mux+"live_slots", "Slots that hold state, of both directions.", func() float64 { return float64(m.LiveSlots.Load()) })
	gauge(mux+"held_records", "Records that wait for an earlier one of their slot.", func() float64 { return float64(m.Held.Load()) })
	gauge(mux+"staged_records", "Records that wait for the connection to their peer.", func() float64 {
		if f := m.staged.Load(); f != nil {
			return float64((*f)())
		}
		return 0
	})
	m.CreditExhausted = counter("velo_streaming_slot_credit_exhausted_total", "Times that a slot ran out of credit, once a spell.")
	m.ProducerWaits = counter("velo_streaming_producer_send_backpressure_total", "Sends that waited for credit or for the connection.")
	m.WatchdogFirings = counter("velo_streaming_heartbeat_watchdog_firings_total", "Streams ended because their peer was silent and did not answer, or their records may have been lost.")
	m.GenerationMismatch = counter(mux+"generation_mismatch_total", "Records for a slot that another stream has by now.")
	m.SeqGaps = counter(mux+"batch_seq_gaps_total", "Batches missing by their sequence within an epoch.")
	m.HoldOverflow = counter(mux+"hold_overflow_total", "Slots closed because their owner broke the rules: more than its credit, a record after the terminal, too much held.")
	m.ControlRefused = counter(mux+"control_refused_total", "Refused opens that were not answered, because too many wait to be.")
	m.EpochDeaths = counter(mux+"epoch_deaths_total", "Connections to peers that were lost with what was on the way.")
	m.CreditReposted = counter(mux+"credit_reposted_total", "Grants of a lost connection that were put back.")
	m.DrainVisits = counter(mux+"drain_visits_total", "Drained slots that were looked at to return their credit.")
	m.Malformed = counter("velo_agent_plane_malformed_batches_total", "Batches that could not be read to their end, or came from more peers than are taken.")
	counter(mux+"reader_stall_total", "Records that did not fit their slot's buffer though credit had room; must stay 0.")
	counter(mux+"credit_lost_total", "Credit of a lost connection that could not be put back; must stay 0.")
	counter(mux+"rendezvous_singletons_total", "Records staged for rendezvous; this node sends large records inline.")
	batches := vec(mux+"batches_total", "Batches.", "direction")
	m.sentBatches, m.receivedBatches = batches.WithLabelValues("sent"), batches.WithLabelValues("received")
	perBatch := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: mux + "records_per_batch", Help: "Records in one batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 12),
	}, []string{"direction"})
	all = append(all, perBatch)
	m.sentRecords, m.receivedRecords = perBatch.WithLabelValues("sent"), perBatch.WithLabelValues("received")
	drops := vec(mux+"records_dropped_total", "Records dropped before delivery.", "reason")
	for i, name := range dropNames {
		m.drops[i] = drops.WithLabelValues(name)
	}
	sent := vec(mux+"records_sent_total", "Records packed for a peer.", "record_type")
	of := func(t wire.RecordType) prometheus.Counter { return sent.WithLabelValues(t.String()) }
	m.sentData, m.sentOpen, m.sentClose = of(wire.Data), of(wire.OpenSlot), of(wire.CloseSlot)
	m.sentCredit, m.sentLifecycle = of(wire.CreditUpdate), of(wire.LifecycleSlot)
	wakes := vec(mux+"batcher_wakes_total", "Times that the connection to a peer was told that there is something to write.", "source")
	m.wakesFrame, m.wakesOpen = wakes.WithLabelValues("frame"), wakes.WithLabelValues("open")
	m.wakesControl, m.wakesLinger = wakes.WithLabelValues("control"), wakes.WithLabelValues("linger")
	if r == nil {
		return m, nil
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of the mux: %w: give each node its own registry, or prometheus.WrapRegistererWith a label of its own", err)
		}
	}
	return m, nil
}

// add counts n, which is often 0.
func add(c prometheus.Counter, n int) {
	if n > 0 {
		c.Add(float64(n))
	}
}

func (m *Metrics) sent(records int, n *recordCounts) {
	m.sentBatches.Inc()
	m.sentRecords.Observe(float64(records))
	add(m.sentData, n.data)
	add(m.sentOpen, n.open)
	add(m.sentClose, n.close)
	add(m.sentCredit, n.credit)
	add(m.sentLifecycle, n.lifecycle)
}

func (m *Metrics) received(records int) {
	m.receivedBatches.Inc()
	m.receivedRecords.Observe(float64(records))
}

func (m *Metrics) dropped(n *dropCounts) {
	if *n == (dropCounts{}) {
		return
	}
	for i := range n {
		add(m.drops[i], n[i])
	}
	*n = dropCounts{}
}
