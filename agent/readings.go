// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/diagnosis"
)

const (
	freshFor       = time.Second // a reading serves all who ask within this time
	measureTimeout = 10 * time.Second
	lastMinute     = time.Minute
)

// readings asks the source, one at a time, and keeps the last answer and the windows
// of the last minute.
type readings struct {
	life   context.Context // no reading outlasts it
	source Source
	log    *slog.Logger

	mu      sync.Mutex
	last    *diagnosis.Measured // cumulative; nil: the source is gone
	taken   time.Time
	err     error               // of the last reading
	begun   *diagnosis.Measured // where the present window began; nil: with the source
	windows []window            // closed ones, oldest first
	report  *diagnosis.Report   // of windows; nil: not made yet
}

// window is what happened between two readings; it ended at the second.
type window struct {
	at time.Time
	*diagnosis.Measured
}

// fresh returns a reading that is at most freshFor old.
func (r *readings) fresh() (*diagnosis.Measured, time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.taken) >= freshFor {
		_ = r.read(Reading{Lazy: true}) // it is kept
	}
	return r.last, r.taken, r.err
}

// now takes a reading for who asks: two of them make a window, however short.
func (r *readings) now() (*diagnosis.Measured, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.read(Reading{})
	return r.last, err
}

// read takes a reading. The lock is held. Who asked may go away meanwhile: a helper
// whose answer is not awaited would be given up for good.
func (r *readings) read(how Reading) error {
	ctx, cancel := context.WithTimeout(r.life, measureTimeout)
	defer cancel()
	m, err := r.source.Measure(ctx, how)
	if err != nil && r.err == nil {
		r.log.Error("no reading of the probes", "error", err)
	}
	r.last, r.taken, r.err = m, time.Now(), err
	return err
}

// closeWindow ends the present window, the first of which began with the source, and
// begins the next. ok is false where there is no reading; the window then goes on.
func (r *readings) closeWindow() (w window, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read(Reading{Forget: true, Lazy: true}) != nil {
		r.windows, r.report = nil, nil
		return window{}, false
	}
	w = window{r.taken, r.last}
	if r.begun != nil {
		w.Measured = r.last.Since(r.begun)
	}
	r.begun = r.last
	r.windows = append(r.windows, w)
	for len(r.windows) > 1 && r.taken.Sub(r.windows[0].at) >= lastMinute {
		r.windows = r.windows[1:]
	}
	r.report = nil // made when it is asked for
	return w, true
}

// sumOf adds windows up, of which there is at least one.
func sumOf(list []window) *diagnosis.Measured {
	sum := list[0].Measured
	for _, w := range list[1:] {
		sum = sum.Add(w.Measured)
	}
	return sum
}

// minute returns the report of the last minute, or of as much as there is.
func (r *readings) minute() *diagnosis.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report == nil && len(r.windows) > 0 {
		r.report = diagnosis.Build(sumOf(r.windows))
	}
	return r.report
}

// idle waits until no reading is under way.
func (r *readings) idle() {
	r.mu.Lock()
	defer r.mu.Unlock()
}

func (r *readings) rewatch(w Watch, o bpf.Objectives) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.life, measureTimeout)
	defer cancel()
	return r.source.Rewatch(ctx, w, o)
}
