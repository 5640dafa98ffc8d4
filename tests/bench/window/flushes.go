// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
	"github.com/velo-agent/velo-agent/tests/results"
)

const (
	pacedStreams = 512
	pacedRate    = 50_000 // records a second in all
	manualEvery  = 2 * time.Millisecond
)

var policies = []struct {
	name  string
	flush mux.Flush
}{
	{"on admission", mux.Flush{Gather: -1}},
	{"gather 2 ms", mux.Flush{}}, // the default
	{"linger 0.5 ms", mux.Flush{Linger: 500 * time.Microsecond}},
	{"linger 2 ms", mux.Flush{Linger: 2 * time.Millisecond}},
	{"manual every 2 ms", mux.Flush{Manual: true}},
}

// paced is what one repetition of a policy shows.
type paced struct{ writes, cpu, p50, p99 float64 }

func flushes(ctx context.Context, out *results.Run, reps int, each time.Duration) error {
	seen := make([][]paced, len(policies))
	for rep := range reps {
		for i := range policies {
			at := (i + rep) % len(policies)
			p, err := pace(ctx, policies[at].flush, each)
			if err != nil {
				return err
			}
			seen[at] = append(seen[at], p)
		}
	}
	for i, policy := range policies {
		of := func(f func(paced) float64) (float64, string) {
			list := []float64{}
			for _, p := range seen[i] {
				list = append(list, f(p))
			}
			return spread(list)
		}
		writes, w := of(func(p paced) float64 { return p.writes })
		cpu, c := of(func(p paced) float64 { return p.cpu })
		p50, a := of(func(p paced) float64 { return p.p50 })
		p99, b := of(func(p paced) float64 { return p.p99 })
		out.Skip("flush "+policy.name, "writes/record", 0, results.Lower,
			fmt.Sprintf("%.3g %s; %.3g µs CPU a record %s; hand-in to consumer p50 %.3g ms %s, p99 %.3g %s; shown", writes, w, cpu, c, p50, a, p99, b))
	}
	return nil
}

// pace sends at a steady rate, a goroutine a stream.
func pace(ctx context.Context, flush mux.Flush, each time.Duration) (p paced, err error) {
	registry := prometheus.NewRegistry()
	from, err := plane.New(plane.Options{
		Listen: []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}, Mux: mux.Options{Flush: flush}, Metrics: registry,
	})
	if err != nil {
		return p, err
	}
	defer from.Close()
	to, err := plane.New(plane.Options{Listen: []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}})
	if err != nil {
		return p, err
	}
	defer to.Close()
	if err := from.Register(to.PeerInfo()); err != nil {
		return p, err
	}
	ctx, stop := context.WithTimeout(ctx, each)
	defer stop()
	var latencies []time.Duration // of the poller's one goroutine: its function never blocks
	var mu sync.Mutex
	poller := plane.NewPoller(func(_ *plane.Anchor, e plane.Event) {
		if e.Kind == wire.Item {
			d := now() - time.Duration(binary.BigEndian.Uint64(e.Data))
			mu.Lock()
			latencies = append(latencies, d)
			mu.Unlock()
		}
	})
	var wg sync.WaitGroup
	for i := range pacedStreams {
		a, s, err := begin(from, to, nil)
		if err != nil {
			return p, err
		}
		poller.Add(a)
		wg.Go(func() {
			const every = time.Second * pacedStreams / pacedRate
			time.Sleep(every * time.Duration(i) / pacedStreams)
			tick := time.NewTicker(every)
			defer tick.Stop()
			record := make([]byte, 160)
			for ctx.Err() == nil {
				<-tick.C
				binary.BigEndian.PutUint64(record, uint64(now()))
				if s.Send(ctx, record) != nil {
					break
				}
			}
			s.Close()
		})
	}
	if flush.Manual {
		wg.Go(func() {
			tick := time.NewTicker(manualEvery)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				from.Flush()
			}
		})
	}
	before := cpu()
	_ = poller.Run(ctx)
	used := cpu() - before
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(latencies) == 0 {
		return p, fmt.Errorf("no record came in %v", each)
	}
	n := float64(len(latencies))
	batches, err := sentBatches(registry)
	if err != nil {
		return p, err
	}
	return paced{
		writes: batches / n, cpu: float64(used.Microseconds()) / n,
		p50: ms(quantile(latencies, 0.5)), p99: ms(quantile(latencies, 0.99)),
	}, nil
}

func sentBatches(r *prometheus.Registry) (float64, error) {
	families, err := r.Gather()
	for _, f := range families {
		if f.GetName() != "velo_streaming_mux_batches_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "sent" {
				return m.GetCounter().GetValue(), nil
			}
		}
	}
	return 0, fmt.Errorf("velo_streaming_mux_batches_total is missing: %w", err)
}

// cpu is what this process, with both ends, has used.
func cpu() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // fails for wrong arguments alone
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
