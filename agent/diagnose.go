// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/diagnosis"
)

// statsFor is how long the kernel's run statistics are on in a window: they cost
// every BPF program of the node a little.
const statsFor = time.Second

// Progress is told what a long verb is at: done of whole. It must not block.
type Progress func(what string, done, whole time.Duration)

// Diagnose watches for the window and returns the report. An error that wraps
// ErrNoSignal comes with a report of what could be had.
func Diagnose(ctx context.Context, o Options, window time.Duration, tell Progress) (*diagnosis.Report, error) {
	tell("attaching", 0, window)
	s, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.watch(ctx, window, tell)
	m, err := s.Measure()
	if err != nil {
		return nil, fmt.Errorf("measuring: %w", err)
	}
	return diagnosis.Build(m), s.Missing()
}

// watch lets the window pass, and the kernel count the programs' runs in its beginning.
func (s *Session) watch(ctx context.Context, window time.Duration, tell Progress) {
	stats := s.sampleStats()
	defer stats()
	pass(ctx, window, func(since time.Duration) {
		if since > statsFor {
			stats()
		}
		tell("measuring", since, window)
	})
}

// pass waits for the window's end, or for ctx: what was seen until then counts. each is
// told now and then how much of it is over.
func pass(ctx context.Context, window time.Duration, each func(since time.Duration)) {
	began := time.Now()
	end := time.NewTimer(window)
	defer end.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-tick.C:
			each(min(time.Since(began), window))
		}
	}
}

// sampleCosts lets the kernel count the programs' runs now and then, until ctx ends.
func (s *Session) sampleCosts(ctx context.Context) {
	for {
		off := s.sampleStats()
		ended := wait(ctx, statsFor)
		off()
		if ended || wait(ctx, costsEvery-statsFor) {
			return
		}
	}
}

// wait reports whether ctx ended before d was over.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-t.C:
		return false
	}
}

// sampleStats switches the kernel's run statistics on and returns how to switch
// them off, which may be called twice.
func (s *Session) sampleStats() func() {
	if s.maps == nil {
		return func() {}
	}
	c, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	if err != nil {
		s.opts.Log.Info("no run statistics of the programs", "error", err)
		s.noStats = err
		if errors.Is(err, unix.EPERM) {
			s.noStats = errNoStats
		}
		return func() {}
	}
	s.counted = true
	return func() {
		if c != nil {
			c.Close()
			c = nil
		}
	}
}
