// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Store is a store with its one writer. Its methods may be called from several
// goroutines; [Store.Stats] and [Store.Range] never wait for the disk that
// [Store.Append] waits for.
type Store struct {
	o    Options
	now  func() (moment, error)
	sync func(*os.File) error // fdatasync

	view atomic.Pointer[view] // what readers see: the state after the last Append

	writing  sync.Mutex // guards all below
	lock     *os.File   // nil: closed
	active   *os.File   // the last of segments; nil: the next snapshot begins one
	segments []segment  // oldest first
	next     uint64     // sequence number
	last     moment     // of the newest snapshot
	age      time.Duration
	damaged  uint64
	failures map[string]uint64
	frame    []byte // reused
}

// view is never changed once it is published.
type view struct {
	segments []segment
	stats    Stats
}

// Stats says what a store holds and what went wrong since it was opened.
type Stats struct {
	Snapshots int
	Bytes     int64 // of all segments
	Segments  int
	Oldest    time.Time         // wall time of the first snapshot, by sequence; zero: none
	Newest    time.Time         // and of the last
	Damaged   uint64            // places without an intact snapshot that were found on opening
	Failures  map[string]uint64 // calls of Append that failed: "disk_full", "too_large", "write"
}

// Open opens the store for writing. A segment that was cut off by a crash loses its
// last, unacknowledged frame; damaged places are left as they are. The error is
// [ErrInUse] where there is a writer, [ErrFull] where there is no room even for
// the lock.
func Open(o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the record: %w", marked(err))
	}
	lock, err := acquire(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("locking the record in %s: %w", o.Dir, marked(err))
	}
	s := &Store{o: o, now: clock(), sync: fdatasync, lock: lock, next: 1, failures: map[string]uint64{}}
	if err := s.load(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("reading the record in %s: %w", o.Dir, marked(err))
	}
	s.publish()
	return s, nil
}

// acquire takes the lock of a store. It goes with the process, and the file stays.
func acquire(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK {
			return nil, ErrInUse
		}
		return nil, err
	}
	return f, nil
}

// load reads all segments and makes the last one ready for more.
func (s *Store) load() error {
	var err error
	if s.segments, err = list(s.o.Dir); err != nil {
		return err
	}
	sc := newScanner()
	for i := range s.segments {
		g := &s.segments[i]
		newest := i == len(s.segments)-1
		s.next = max(s.next, g.first)
		found, err := sc.file(g.path(s.o.Dir), g.size, func(n Snapshot) error {
			s.count(g, n)
			return nil
		})
		damaged := found.damaged
		switch {
		case err != nil:
			damaged++
			s.next = max(s.next, g.first+uint64(g.size)/headerLen+1) // behind all that it can hold
			s.o.Log.Warn("a segment of the record cannot be read; the others are used", "segment", g.path(s.o.Dir), "error", err)
		case newest:
			if s.active, err = s.resume(g, found); err != nil {
				return err
			}
		case found.torn:
			damaged++
		}
		if damaged > 0 {
			s.o.Log.Warn("a segment of the record is damaged; what is intact is used", "segment", g.path(s.o.Dir), "places", damaged)
		}
		s.damaged += damaged
	}
	return nil
}

// resume opens the newest segment for appending and cuts off a torn end.
func (s *Store) resume(g *segment, found scanned) (*os.File, error) {
	f, err := os.OpenFile(g.path(s.o.Dir), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil || !found.torn {
		return f, err
	}
	if err := f.Truncate(found.end); err != nil {
		f.Close()
		return nil, err
	}
	s.o.Log.Info("cut off a snapshot that was not written to its end", "segment", f.Name(), "bytes", g.size-found.end)
	g.size = found.end
	return f, nil
}

// count takes a snapshot into account that lies in g.
func (s *Store) count(g *segment, n Snapshot) {
	at := moment{n.Boot, n.SinceBoot}
	s.age += s.last.until(at)
	s.last = at
	s.next = max(s.next, n.Sequence+1)
	g.add(n.Time, s.age)
}

// publish makes the present state the one that readers see.
func (s *Store) publish() {
	v := &view{segments: slices.Clone(s.segments)}
	v.stats = Stats{Segments: len(v.segments), Damaged: s.damaged, Failures: maps.Clone(s.failures)}
	for _, g := range v.segments {
		v.stats.Bytes += g.size
		if g.snapshots == 0 {
			continue
		}
		if v.stats.Snapshots == 0 {
			v.stats.Oldest = g.firstAt
		}
		v.stats.Snapshots += g.snapshots
		v.stats.Newest = g.lastAt
	}
	s.view.Store(v)
}

// Stats returns what the store held after the last Append.
func (s *Store) Stats() Stats {
	st := s.view.Load().stats
	st.Failures = maps.Clone(st.Failures)
	return st
}

// Range is [Range] on this store; it opens only the segments that can hold
// snapshots of that time. It works after Close too.
func (s *Store) Range(from, to time.Time, f func(Snapshot) error) (Read, error) {
	return read(s.o.Dir, s.view.Load().segments, from, to, f)
}

// Close gives the store to the next writer. Append fails with [os.ErrClosed] from
// then on; closing again does nothing.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.lock == nil {
		return nil
	}
	err := s.retire()
	err = errors.Join(err, s.lock.Close())
	s.lock = nil
	if err != nil {
		return fmt.Errorf("closing the record in %s: %w", s.o.Dir, err)
	}
	return nil
}
