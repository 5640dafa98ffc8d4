// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Append adds a snapshot. When it returns nil the snapshot is on the disk. On an
// error the store holds what it held before, and can be used further: [ErrFull],
// where deleting the oldest segment made no room; [ErrTooLarge]; or one of the disk.
func (s *Store) Append(t time.Time, payload []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.lock == nil {
		return fmt.Errorf("appending to the record in %s: %w", s.o.Dir, os.ErrClosed)
	}
	err := s.append(t, payload)
	if errors.Is(err, ErrFull) {
		if dropped, e := s.drop(); e != nil {
			err = errors.Join(err, e)
		} else if dropped {
			s.o.Log.Warn("no room for the record: dropped its oldest segment", "dir", s.o.Dir)
			err = s.append(t, payload)
		}
	}
	if err != nil {
		s.failures[reason(err)]++
		err = fmt.Errorf("appending to the record in %s: %w", s.o.Dir, err)
	}
	s.publish()
	return err
}

// reason is the key of Stats.Failures.
func reason(err error) string {
	switch {
	case errors.Is(err, ErrFull):
		return "disk_full"
	case errors.Is(err, ErrTooLarge):
		return "too_large"
	}
	return "write"
}

// append is Append without the second attempt.
func (s *Store) append(t time.Time, payload []byte) error {
	at, err := s.now()
	if err != nil {
		return err
	}
	n := Snapshot{Sequence: s.next, Time: time.Unix(0, t.UnixNano()), Boot: at.boot, SinceBoot: at.since, Payload: payload}
	if !n.Time.Equal(t) {
		return fmt.Errorf("the time %v is outside of the years 1678 to 2262", t)
	}
	if size := int64(headerLen + len(payload)); len(payload) > MaxPayload || size > s.o.MaxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(payload), min(MaxPayload, s.o.MaxBytes-headerLen))
	}
	s.frame = appendFrame(s.frame[:0], n)
	if err := s.prepare(int64(len(s.frame)), s.age+s.last.until(at)); err != nil {
		return marked(err)
	}
	_, err = s.active.Write(s.frame)
	if err == nil {
		err = s.sync(s.active)
	}
	if err != nil {
		s.undo()
		return marked(err)
	}
	g := &s.segments[len(s.segments)-1]
	g.size += int64(len(s.frame))
	s.count(g, n)
	return nil
}

// prepare ends the active segment where it is full, begins one where there is none,
// and drops what is too old or too much once a frame of size bytes and of that
// age is added.
func (s *Store) prepare(size int64, age time.Duration) error {
	if err := s.forget(); err != nil {
		return err
	}
	if s.active != nil {
		g := s.segments[len(s.segments)-1]
		// Small snapshots fill a segment slowly: it ends by time too, so that its
		// oldest one is not kept long past its time.
		full := g.size > 0 && g.size+size > s.o.SegmentBytes
		if full || g.snapshots > 0 && age-g.begins > s.o.Keep/partsByAge {
			if err := s.retire(); err != nil {
				s.o.Log.Warn("a segment of the record did not close cleanly", "error", err)
			}
		}
	}
	if s.active == nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	total := size
	for _, g := range s.segments {
		total += g.size
	}
	for len(s.segments) > 1 {
		oldest := s.segments[0]
		if total <= s.o.MaxBytes && age-oldest.ends <= s.o.Keep {
			return nil
		}
		if _, err := s.drop(); err != nil {
			return err
		}
		total -= oldest.size
	}
	return nil
}

// begin makes the next segment the active one.
func (s *Store) begin() error {
	g := segment{first: s.next}
	f, err := os.OpenFile(g.path(s.o.Dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s.active = f
	s.segments = append(s.segments, g)
	return s.syncDir()
}

// syncDir makes the name of a new segment as lasting as what is written to it.
func (s *Store) syncDir() error {
	d, err := os.Open(s.o.Dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// retire ends the active segment.
func (s *Store) retire() error {
	if s.active == nil {
		return nil
	}
	err := s.active.Close()
	s.active = nil
	return err
}

// undo takes back what a failed write left. Where that fails too, the segment
// ends there, and so does the use of this sequence number.
func (s *Store) undo() {
	err := s.active.Truncate(s.segments[len(s.segments)-1].size)
	if err == nil {
		return
	}
	s.o.Log.Warn("part of a snapshot stays in the record: its segment could not be cut", "error", err)
	s.next++
	_ = s.retire() // its end is lost already
}

// drop deletes the oldest segment that is not the active one, or reports false where
// there is none.
func (s *Store) drop() (bool, error) {
	ended := len(s.segments)
	if s.active != nil {
		ended--
	}
	if ended == 0 {
		return false, nil
	}
	if err := os.Remove(s.segments[0].path(s.o.Dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("dropping the oldest segment: %w", err)
	}
	s.segments = slices.Delete(s.segments, 0, 1)
	return true, nil
}

// forget strikes segments that somebody deleted, once the active one is among them:
// what is written to it would be lost silently.
func (s *Store) forget() error {
	if s.active == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(s.active.Fd()), &st); err != nil || st.Nlink > 0 {
		return err
	}
	s.o.Log.Warn("somebody deleted segments of the record: beginning a new one", "dir", s.o.Dir)
	s.segments = slices.DeleteFunc(s.segments, func(g segment) bool {
		_, err := os.Lstat(g.path(s.o.Dir))
		return errors.Is(err, fs.ErrNotExist)
	})
	return s.retire()
}

// fdatasync waits until the file's bytes and size are on the disk.
func fdatasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
