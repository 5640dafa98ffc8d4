// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

const scrapers = 4

// scrapes lets several scrapers ask all the time, in both formats, and one alone,
// before, with pauses so long (above a second) that each of its pages is made for it.
func scrapes(ctx context.Context, out *results.Run, d *live.Daemon, p plan, m *memory) error {
	for _, f := range []struct{ name, format string }{{"text", live.Text}, {"protobuf", live.Protobuf}} {
		plain, sent, err := d.Size(ctx, f.format)
		if err != nil {
			return err
		}
		alone, err := scrape(ctx, d, f.format, 1, 2200*time.Millisecond, p.scraping, m)
		if err != nil {
			return err
		}
		fmt.Printf("a page of %s: %.0f KiB, %.0f KiB with gzip; alone, each page made anew: p50 %.1f ms, longest %.1f ms of %d\n",
			f.name, float64(plain)/1024, float64(sent)/1024, quantile(alone, 0.5), quantile(alone, 1), len(alone))
		took, err := scrape(ctx, d, f.format, scrapers, 50*time.Millisecond, p.scraping, m)
		if err != nil {
			return err
		}
		note := fmt.Sprintf("p50 %.1f, p90 %.1f, longest %.1f", quantile(took, 0.5), quantile(took, 0.9), quantile(took, 1))
		p.judge(out, fmt.Sprintf("scrape of %s, %d scrapers, p99", f.name, scrapers), quantile(took, 0.99), "ms", scrapeGoal, len(took), note)
	}
	page, err := d.Page(ctx)
	if err != nil {
		return err
	}
	sets, series := page.Sets()
	fmt.Printf("%d families, %d label sets, %d series in classic form\n", len(page), sets, series)
	page.Each("velo_agent_folded_series", func(labels map[string]string, v float64) {
		fmt.Printf("%.0f label sets of %s found no room in its budget\n", v, labels["family"])
	})
	return nil
}

// scrape returns how long each scrape took, in ms, sorted. A scraper pauses between
// half of pause and all of it.
func scrape(ctx context.Context, d *live.Daemon, format string, scrapers int, pause, length time.Duration, m *memory) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var took []float64
	var failed error
	for range scrapers {
		wg.Go(func() {
			for ctx.Err() == nil {
				t, err := d.Scrape(context.WithoutCancel(ctx), format)
				mu.Lock()
				failed = errors.Join(failed, err)
				took = append(took, t.Took.Seconds()*1e3)
				mu.Unlock()
				if err != nil {
					return
				}
				pauseFor(ctx, pause-rand.N(pause/2))
			}
		})
	}
	for pauseFor(ctx, time.Second) {
		if err := m.sample(); err != nil {
			failed = errors.Join(failed, err)
			cancel()
		}
	}
	wg.Wait()
	slices.Sort(took)
	return took, failed
}

// quantile is of sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// pauseFor returns false where ctx ended.
func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
