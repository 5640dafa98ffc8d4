// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
)

// TestStorm begins and ends streams in every way while connections are lost again and
// again: each has its end, none has another's records, and nothing is left.
func TestStorm(t *testing.T) {
	watch(t)
	workers, losses := max(pick(256, 1024), 128), max(pick(12, 300), 8)
	s := newScene(t, plane.Options{AcceptWindow: time.Second})
	ctx, stop := context.WithCancel(t.Context())
	until, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wrong complaints
	var mu sync.Mutex
	seen := ends{}
	var number, took atomic.Uint64
	stream := func(rng *rand.Rand) {
		k := number.Add(1)
		sender, anchor := open(t, s.producer, s.consumer, plane.AnchorOptions{})
		records, how, leaves := rng.IntN(100), rng.IntN(8), rng.IntN(400)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer anchor.Close()
		sent := 0
		wg.Go(func() {
			defer sender.Close()
			var b []byte
			for ; sent < records; sent++ {
				if b = record(b, k, uint64(sent), 40+rng.IntN(1000)); sender.Send(until, b) != nil {
					if until.Err() != nil {
						wrong.add("the producer of stream %d waits for ever", k)
					}
					return
				}
			}
			switch how {
			case 0: // it is dropped
			case 1:
				_ = sender.Fail("a failure")
			default:
				_ = sender.Finalize()
			}
		})
		for i := 0; ; i++ {
			if i == leaves {
				return
			}
			b, err := anchor.Recv(until)
			if err == nil {
				if string(b) != string(record(nil, k, uint64(i), len(b))) {
					wrong.add("stream %d: want record %d, got %x", k, i, b[:min(16, len(b))])
				}
				took.Add(1)
				continue
			}
			if err == io.EOF && i != records {
				wrong.add("stream %d is said to be complete after %d of %d records", k, i, records)
			}
			mu.Lock()
			seen[word(err)]++
			mu.Unlock()
			return
		}
	}
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				stream(rng)
			}
		})
	}
	storms := []*proxy{s.there, s.back}
	rng := rand.New(rand.NewPCG(1, 2))
	for range losses {
		before := took.Load()
		p := storms[rng.IntN(len(storms))]
		switch rng.IntN(3) {
		case 0:
			p.reset()
		case 1:
			p.do(func(f *passing) []step { return []step{{write: f.raw[:len(f.raw)/2]}, {reset: true}} })
		case 2:
			p.do(func(f *passing) []step { return []step{{write: f.raw[:len(f.raw)-1]}, {shut: true}} })
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		s.there.pass()
		s.back.pass()
		eventually(t, func() string {
			if took.Load() == before {
				return "nothing is read any more"
			}
			return ""
		})
	}
	stop()
	wg.Wait()
	wrong.tell(t)
	t.Logf("%d streams, %d records, ends %v", number.Load(), took.Load(), seen)
	for _, how := range []string{"complete", "dropped"} {
		if seen[how] == 0 {
			t.Errorf("no stream ends %s", how)
		}
	}
	rose(t, s.producer, losses/10, epochDeaths)
	quiet(t, s.producer, s.consumer)
}
