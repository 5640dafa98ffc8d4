// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"io"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// busyNode has so many ports with a few samples in each histogram.
func busyNode(ports int) *diagnosis.Measured {
	m := &diagnosis.Measured{}
	for p := range ports {
		h := func(d time.Duration) *attribution.Histogram {
			var h attribution.Histogram
			for i := range 20 {
				h.Add(d + time.Duration(i)*d/10)
			}
			return &h
		}
		port := diagnosis.Port{
			Port: uint16(1000 + p), Process: "server", NetNS: uint64(p % 20), Exchanges: new(uint64(20)), Connections: new(uint64(100)),
			TTFT: h(30 * time.Millisecond), FirstWrite: h(20 * time.Millisecond), Gap: h(5 * time.Millisecond),
			Accept: &diagnosis.Accept{Limit: 128, HighWater: new(uint64(3)), Arrivals: new(uint64(9)), Overflows: new(uint64(0)), Wait: h(time.Millisecond)},
			Loss:   diagnosis.Loss{Retransmits: new(uint64(0)), ResetsSent: new(uint64(0)), ResetsReceived: new(uint64(0)), ZeroWindows: new(uint64(0)), NagleWrites: new(uint64(0))},
		}
		for s := range attribution.NumStages {
			port.Stages[s].TTFT = h(time.Millisecond)
		}
		port.Stages[attribution.Engine].Gap, port.Stages[attribution.SendQueue].Gap = h(time.Millisecond), h(time.Millisecond)
		m.Ports = append(m.Ports, port)
	}
	return m
}

func BenchmarkPage(b *testing.B) {
	m := busyNode(100)
	c := New(func() *Snapshot { return &Snapshot{Measured: m} }, nil)
	for _, format := range []expfmt.FormatType{expfmt.TypeTextPlain, expfmt.TypeProtoDelim} {
		b.Run(string(expfmt.NewFormat(format))[:16], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Each(expfmt.NewEncoder(io.Discard, expfmt.NewFormat(format)).Encode); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
