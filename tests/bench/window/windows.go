// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
	"github.com/velo-agent/velo-agent/tests/results"
)

const (
	saturating = 256                   // streams that always have something to send
	work       = 10 * time.Microsecond // of the consumer, a record
	newEvery   = 5 * time.Millisecond  // a stream of one record
	leastRatio = 2                     // first records at 256 against 32; results-to-reproduce section 5 has 5 and more
)

var sizes = []uint32{16, 32, 64, 256}

func windows(ctx context.Context, out *results.Run, reps int, each time.Duration) error {
	p50, p99, rate := map[uint32][]float64{}, map[uint32][]float64{}, map[uint32][]float64{}
	samples := 0
	for rep := range reps {
		for i := range sizes {
			w := sizes[(i+rep)%len(sizes)]
			firsts, records, err := saturated(ctx, w, each)
			if err != nil {
				return err
			}
			samples += len(firsts)
			p50[w] = append(p50[w], ms(quantile(firsts, 0.5)))
			p99[w] = append(p99[w], ms(quantile(firsts, 0.99)))
			rate[w] = append(rate[w], float64(records)/each.Seconds())
		}
	}
	mids := map[uint32]float64{}
	for _, w := range sizes {
		mid, note := spread(p50[w])
		mids[w] = mid
		tail, tails := spread(p99[w])
		r, rates := spread(rate[w])
		out.Skip(fmt.Sprintf("first record, window %d", w), "ms p50", 0, results.Lower,
			fmt.Sprintf("%.3g %s; p99 %.3g %s; %.0f records/s %s; shown", mid, note, tail, tails, r, rates))
	}
	out.Add("first record at 256 ÷ at 32", mids[256]/mids[32], "ratio", leastRatio, results.Higher, samples,
		"a large window lets the surplus stand in the way of all")
	return nil
}

// saturated runs a consumer that cannot keep up and returns how long first records waited.
func saturated(ctx context.Context, window uint32, each time.Duration) (firsts []time.Duration, records int64, err error) {
	from, to, err := pair(mux.Options{}, mux.Options{Window: window})
	if err != nil {
		return nil, 0, err
	}
	defer to.Close()
	defer from.Close()
	ctx, stop := context.WithTimeout(ctx, each)
	defer stop()
	var count atomic.Int64
	var mu sync.Mutex
	poller := plane.NewPoller(func(a *plane.Anchor, e plane.Event) {
		if e.Kind != wire.Item || ctx.Err() != nil {
			return
		}
		count.Add(1)
		if a.Value() == true {
			sent := time.Duration(binary.BigEndian.Uint64(e.Data))
			mu.Lock()
			firsts = append(firsts, now()-sent)
			mu.Unlock()
		}
		for begun := now(); now()-begun < work; {
		}
	})
	var wg sync.WaitGroup
	for range saturating {
		a, s, err := begin(from, to, false)
		if err != nil {
			return nil, 0, err
		}
		poller.Add(a)
		wg.Go(func() {
			record := make([]byte, 160)
			for s.Send(ctx, record) == nil {
			}
			s.Close()
		})
	}
	wg.Go(func() {
		tick := time.NewTicker(newEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			a, s, err := begin(from, to, true)
			if err != nil {
				return
			}
			poller.Add(a)
			record := make([]byte, 160)
			binary.BigEndian.PutUint64(record, uint64(now()))
			_ = s.Send(ctx, record) // the end came meanwhile
			s.Finalize()
		}
	})
	_ = poller.Run(ctx)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	return firsts, count.Load(), nil
}

var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }
