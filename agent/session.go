// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/ladder"
	"github.com/velo-agent/velo-agent/bpf/sched"
	"github.com/velo-agent/velo-agent/bpf/sockqueue"
	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/preflight"
)

const (
	drainEvery        = 20 * time.Millisecond // the ring holds some 4,800 records
	drainIdle         = time.Second           // where nothing comes; many records come sooner
	lookEvery         = 10 * time.Minute      // for new listeners and threads, though nothing stirred
	lookForks         = 10 * time.Second      // where watched processes forked
	lookBlind         = 15 * time.Second      // where no program says that something stirred
	lookAgain         = 2 * time.Second       // the soonest after a look
	lookShare         = 50                    // looking takes at most one part in so many of the time
	feedbackEvery     = time.Second
	costsEvery        = time.Minute
	closeTimeout      = 2 * time.Second
	backlogQuiet      = 10 * time.Second // LeftLater is detached after this long without a backlog
	firstGapThreshold = 50 * time.Millisecond
	leastGapThreshold = time.Millisecond
	tracedPerSecond   = 2000 // exchanges; beyond it one in 2, 4, … is traced
)

// Session is a set of attached probes and the loops that serve them.
type Session struct {
	opts     Options
	maps     *bpf.Maps // nil where there is no BPF
	holds    []*ladder.Hold
	coverage []diagnosis.Coverage
	sockets  *sockqueue.Marker
	threads  *sched.Marker
	records  *bpf.Records
	missing  error // why stages cannot be told; nil: they can
	noStats  error // why the programs' cost is not known; nil: it is, or nobody asked
	counted  bool  // the programs' runs were

	targets *targets
	seen    *seen
	backlog backlog
	begun   time.Time
	base    baseline

	marking sync.Mutex
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// Open finds what is to be watched, attaches the probes and marks what is there.
// Where probes are not to be had it still opens: Missing then says why, and
// Measure serves what needs none. ErrNotThere: nothing to watch.
func Open(ctx context.Context, o Options) (*Session, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Session{opts: o, seen: newSeen()}
	var err error
	if s.targets, err = findTargets(o.Host, o.Watch); err != nil {
		return nil, err
	}
	if err := s.attach(); err != nil {
		s.missing = err
		o.Log.Warn("no probes", "error", err)
	}
	if err := s.markFound(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if blind := s.targets.allBlind(); blind != nil && s.missing == nil {
		s.missing = fmt.Errorf("%w: %w", ErrNoSignal, blind)
	}
	s.begun = time.Now()
	s.base = s.readBaseline()
	loop, stop := context.WithCancel(ctx)
	s.stop = stop
	if s.records != nil {
		s.wg.Go(func() { s.serveRing(loop) })
	}
	s.wg.Go(func() { s.look(loop) })
	if o.SampleCosts {
		s.wg.Go(func() { s.sampleCosts(loop) })
	}
	return s, nil
}

// Missing says why the stages cannot be told, or is nil.
func (s *Session) Missing() error { return s.missing }

func (s *Session) attach() error {
	if s.opts.NoBPF {
		return fmt.Errorf("%w: BPF is switched off", ErrNoSignal)
	}
	maps, err := bpf.NewMaps()
	if err != nil {
		s.loseAll("probes", err)
		return fmt.Errorf("%w: %w", ErrNoSignal, err)
	}
	s.maps = maps
	if err := maps.SetObjectives(s.opts.Objectives); err != nil {
		return err
	}
	if err := maps.SetFlag(bpf.FlagContent, !s.opts.NoContent); err != nil {
		return err
	}
	s.seen.feedback.last = s.opts.tracing()
	if err := maps.Trace(s.seen.feedback.last); err != nil {
		return err
	}
	if s.records, err = maps.NewRecords(); err != nil {
		return err
	}
	if s.sockets, err = sockqueue.NewMarker(maps); err != nil {
		s.loseAll("marks", err)
		return fmt.Errorf("%w: %w", ErrNoSignal, err)
	}
	if !s.opts.NoSched {
		if s.threads, err = sched.NewMarker(maps); err != nil {
			s.opts.NoSched = true // without marks its programs would see nothing
			s.coverage = append(s.coverage, diagnosis.Coverage{Signal: "wake_to_run", Missing: true, Note: err.Error()})
		}
	}
	err = s.climb()
	s.seen.opts.NoSched = !s.held("wake_to_run")
	return err
}

// serveRing serves the ring and the backlog until ctx ends. An idle node is asked
// less often.
func (s *Session) serveRing(ctx context.Context) {
	defer context.AfterFunc(ctx, s.records.EndWait)()
	wait := drainEvery
	fed, records := time.Now(), 0
	for ctx.Err() == nil {
		if err := s.records.Wait(wait); err != nil {
			s.opts.Log.Error("streams are no longer followed", "error", err)
			return
		}
		n := s.drain()
		records += n
		if s.followBacklog() || n > 0 {
			wait = drainEvery
		} else {
			wait = min(wait*2, drainIdle)
		}
		if now := time.Now(); records > 0 && now.Sub(fed) >= feedbackEvery {
			s.feedBack(now.Sub(fed))
			fed, records = now, 0
		}
	}
}

// look marks new listeners and threads until ctx ends: soon after a process that may be
// meant began to listen or a watched one ended to, later after watched processes forked,
// and now and then. The walk over /proc may take long on a node with many sockets; it
// gets a small share of the time.
func (s *Session) look(ctx context.Context) {
	every := lookEvery
	if !s.held("connection_state") {
		every = lookBlind
	}
	tick := time.NewTicker(lookAgain / 2)
	defer tick.Stop()
	last, soonest := time.Now(), time.Now()
	seen, wanted := s.stirred(), true // what began to listen while the probes were attached
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, stirred := time.Now(), s.stirred()
		wanted = wanted || s.concerns(seen.Listens, stirred.Listens)
		seen.Listens = stirred.Listens
		since := now.Sub(last)
		forked := stirred.Forks != seen.Forks && since >= lookForks
		if !wanted && !forked && since < every || now.Before(soonest) {
			continue
		}
		seen.Forks, wanted = stirred.Forks, false
		if err := s.mark(); err != nil {
			s.opts.Log.Warn("looking for new listeners", "error", err)
		}
		last = time.Now()
		soonest = last.Add(max(lookAgain, lookShare*last.Sub(now)))
	}
}

// concerns reports whether one of the listeners from since to now may be meant.
func (s *Session) concerns(since, now uint64) bool {
	if since == now {
		return false
	}
	list, ok, err := s.maps.Listenings(since, now)
	if err != nil {
		s.opts.Log.Warn("asking what listens", "error", err)
	}
	s.seen.mu.Lock()
	w := s.opts.Watch
	s.seen.mu.Unlock()
	return !ok || slices.ContainsFunc(list, func(l bpf.Listening) bool { return meant(s.opts.Host, w, l) })
}

// meant reports whether w may mean the listener. Who cannot be asked, may be.
func meant(h preflight.Host, w Watch, l bpf.Listening) bool {
	if l.PID == 0 || slices.Contains(w.Ports, l.Port) || slices.Contains(w.PIDs, l.PID) {
		return true
	}
	if !w.empty() && !w.Engines && len(w.Cgroups) == 0 {
		return false
	}
	line, err := h.Line(l.PID)
	if len(line) == 0 {
		return !errors.Is(err, fs.ErrNotExist)
	}
	if slices.ContainsFunc(w.Cgroups, func(c string) bool { return within(line[0].Cgroup, c) }) {
		return true
	}
	if w.empty() || w.Engines {
		engines, _ := h.Engines(line) // some of them is enough
		return len(engines) > 0
	}
	return false
}

// stirred is zero where there are no programs that count.
func (s *Session) stirred() bpf.Stirred {
	if s.maps == nil {
		return bpf.Stirred{}
	}
	st, err := s.maps.Stirred()
	if err != nil {
		s.opts.Log.Warn("asking what stirred", "error", err)
	}
	return st
}

// Rewatch changes what is watched. What was found before goes on where it is still
// named, without a gap in its figures.
func (s *Session) Rewatch(w Watch, o bpf.Objectives) error {
	s.seen.mu.Lock()
	s.opts.Watch = w
	s.seen.mu.Unlock()
	if s.maps != nil {
		if err := s.maps.SetObjectives(o); err != nil {
			return err
		}
	}
	return s.mark()
}

// Close detaches everything and waits for the loops. The maps, and with them all
// marks, are gone afterwards.
func (s *Session) Close() error {
	if s.stop != nil {
		s.stop()
	}
	s.wg.Wait()
	var errs []error
	for i := len(s.holds) - 1; i >= 0; i-- {
		errs = append(errs, s.holds[i].Close())
	}
	errs = append(errs, s.backlog.close()) // the loop that used it is over
	if s.sockets != nil {
		errs = append(errs, s.sockets.Close())
	}
	if s.threads != nil {
		errs = append(errs, s.threads.Close())
	}
	if s.records != nil {
		errs = append(errs, s.records.Close())
	}
	if s.maps != nil {
		errs = append(errs, s.maps.Close())
	}
	return errors.Join(errs...)
}

// incomplete reports whether err only says that some facts are missing.
func incomplete(err error) bool {
	var in *preflight.Incomplete
	return err == nil || errors.As(err, &in)
}
