// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "record")
	s := open(t, Options{Dir: dir})
	for i, n := range []int{0, 1, 30_000, MaxPayload} {
		s.add(t, noon.Add(time.Duration(i)*10*time.Second), bytes.Repeat([]byte{'x'}, n))
	}
	all, r := readDir(t, dir, always, forever)
	if len(all) != 4 || r.Damaged != 0 {
		t.Fatalf("read %d snapshots and %d damaged places, want 4 and 0", len(all), r.Damaged)
	}
	for i, n := range []int{0, 1, 30_000, MaxPayload} {
		got := all[i]
		if got.Sequence != uint64(i+1) || !got.Time.Equal(noon.Add(time.Duration(i)*10*time.Second)) ||
			got.Boot == 0 || got.SinceBoot <= 0 || !bytes.Equal(got.Payload, bytes.Repeat([]byte{'x'}, n)) {
			t.Errorf("snapshot %d came back as sequence %d, %v, boot %x, %v, %d bytes", i+1, got.Sequence, got.Time, got.Boot, got.SinceBoot, len(got.Payload))
		}
	}
	st := s.Stats()
	if st.Snapshots != 4 || !st.Oldest.Equal(noon) || !st.Newest.Equal(noon.Add(30*time.Second)) || st.Damaged != 0 || len(st.Failures) != 0 {
		t.Errorf("stats are %+v", st)
	}
	for name, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, "lock"): 0o600, segmentFiles(t, dir)[0]: 0o600} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: mode %v (%v), want %v", name, st.Mode().Perm(), err, want)
		}
	}
}

func TestRangeIsHalfOpen(t *testing.T) {
	s := open(t, Options{})
	for i := range 5 {
		s.add(t, noon.Add(time.Duration(i)*time.Minute), nil)
	}
	for _, tc := range []struct {
		name     string
		from, to time.Duration
		want     int
	}{
		{"before", -time.Hour, 0, 0},
		{"first", 0, 1, 1},
		{"middle", time.Minute, 3 * time.Minute, 2},
		{"last", 4 * time.Minute, time.Hour, 1},
		{"behind", 4*time.Minute + 1, time.Hour, 0},
		{"reversed", 3 * time.Minute, time.Minute, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := s.Range(noon.Add(tc.from), noon.Add(tc.to), func(Snapshot) error { return nil })
			if err != nil || r.Snapshots != tc.want {
				t.Errorf("read %d, %v, want %d", r.Snapshots, err, tc.want)
			}
			if all, _ := readDir(t, s.o.Dir, noon.Add(tc.from), noon.Add(tc.to)); len(all) != tc.want {
				t.Errorf("read %d from the folder, want %d", len(all), tc.want)
			}
		})
	}
}

func TestRangeStops(t *testing.T) {
	s := open(t, Options{})
	for range 3 {
		s.add(t, noon, nil)
	}
	enough := errors.New("enough")
	r, err := s.Range(always, forever, func(s Snapshot) error {
		if s.Sequence == 2 {
			return enough
		}
		return nil
	})
	if err != enough || r.Snapshots != 2 {
		t.Errorf("read %d and %v, want to stop at the second with its error", r.Snapshots, err)
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	for i := range uint64(5) {
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		s.add(t, noon, payload(i, 100))
		if st := s.Stats(); st.Snapshots != int(i+1) || st.Segments != 1 {
			t.Errorf("after opening %d times: %+v, want one segment that is gone on with", i+1, st)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantSequences(t, dir, 0, upTo(1, 5)...)
}

// The number in the last segment's name counts where its frames are lost.
func TestSequenceSurvivesLoss(t *testing.T) {
	s := open(t, Options{SegmentBytes: 100})
	dir := s.o.Dir
	for range 3 {
		s.add(t, noon, payload(0, 100))
	}
	s.Close()
	for _, name := range segmentFiles(t, dir)[1:] {
		change(t, name, func(b []byte) []byte { return b[:0] })
	}
	s = open(t, Options{Dir: dir, SegmentBytes: 100})
	s.add(t, noon, nil)
	wantSequences(t, dir, 0, 1, 3)
}

func TestSecondWriter(t *testing.T) {
	s := open(t, Options{})
	if _, err := Open(s.o); !errors.Is(err, ErrInUse) {
		t.Errorf("a second writer got %v, want ErrInUse", err)
	}
	s.add(t, noon, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, s.o)
}

func TestClosed(t *testing.T) {
	s := open(t, Options{})
	s.add(t, noon, nil)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Append(noon, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("appending after closing: %v, want os.ErrClosed", err)
	}
	if r, err := s.Range(always, forever, func(Snapshot) error { return nil }); err != nil || r.Snapshots != 1 {
		t.Errorf("reading after closing: %d, %v, want 1", r.Snapshots, err)
	}
}

func TestRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"no folder":         {},
		"negative size":     {Dir: t.TempDir(), MaxBytes: -1, SegmentBytes: -2},
		"negative age":      {Dir: t.TempDir(), Keep: -1},
		"segment above all": {Dir: t.TempDir(), MaxBytes: 10, SegmentBytes: 11},
	} {
		if _, err := Open(o); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	if _, err := Range(filepath.Join(t.TempDir(), "none"), always, forever, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading no folder: %v, want fs.ErrNotExist", err)
	}

	s := open(t, Options{MaxBytes: 1000})
	for name, tc := range map[string]struct {
		at   time.Time
		n    int
		want error
	}{
		"above all":     {noon, 1000, ErrTooLarge},
		"above a frame": {noon, MaxPayload + 1, ErrTooLarge},
		"no time":       {time.Time{}, 1, nil},
	} {
		if err := s.Append(tc.at, make([]byte, tc.n)); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if f := s.Stats().Failures; f["too_large"] != 2 || f["write"] != 1 {
		t.Errorf("failures are %v", f)
	}
	s.add(t, noon, nil)
	wantSequences(t, s.o.Dir, 0, 1)
}

func TestReaderDuringWriter(t *testing.T) {
	s := open(t, Options{MaxBytes: 1 << 20, SegmentBytes: 64 << 10})
	s.sync = func(*os.File) error { return nil }
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := uint64(1); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Append(noon, payload(i, 8+int(i*977%20_000))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	read, most := 0, uint64(0)
	for range 50 {
		for name, f := range map[string]func(func(Snapshot) error) (Read, error){
			"store":  func(f func(Snapshot) error) (Read, error) { return s.Range(always, forever, f) },
			"folder": func(f func(Snapshot) error) (Read, error) { return Range(s.o.Dir, always, forever, f) },
		} {
			last := uint64(0)
			r, err := f(func(n Snapshot) error {
				if n.Sequence <= last || !bytes.Equal(n.Payload, payload(n.Sequence, len(n.Payload))) {
					t.Errorf("%s: snapshot %d after %d, or not as written", name, n.Sequence, last)
				}
				last = n.Sequence
				return nil
			})
			if err != nil || r.Damaged != 0 {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			read, most = read+r.Snapshots, max(most, last)
		}
	}
	close(stop)
	wg.Wait()
	if read == 0 || most > s.next {
		t.Errorf("read %d snapshots, the last %d of %d", read, most, s.next-1)
	}
}

func TestReadingNeedsNoOtherRight(t *testing.T) {
	s := open(t, Options{})
	s.add(t, noon, nil)
	dir := s.o.Dir
	s.Close()
	if os.Getuid() == 0 {
		for _, name := range []string{dir, segmentFiles(t, dir)[0]} {
			if err := os.Chown(name, 65534, 65534); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, mode := range map[string]fs.FileMode{segmentFiles(t, dir)[0]: 0o400, dir: 0o500} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	reach(t, dir)
	asNobody(t, func() {
		if f, err := os.Create(filepath.Join(dir, "x")); err == nil {
			f.Close()
			t.Error("nobody can write here: this test shows nothing")
		}
		r, err := Range(dir, always, forever, func(Snapshot) error { return nil })
		if err != nil || r.Snapshots != 1 {
			t.Errorf("read %d, %v, want 1", r.Snapshots, err)
		}
	})
}

// What a reader or writer may not open is named, and the rest is used.
func TestUnreadableSegment(t *testing.T) {
	s := open(t, Options{SegmentBytes: 100})
	dir := s.o.Dir
	for range 3 {
		s.add(t, noon, payload(0, 100))
	}
	s.Close()
	files := segmentFiles(t, dir)
	if os.Getuid() == 0 {
		for _, name := range []string{dir, filepath.Join(dir, "lock"), files[0], files[1]} {
			if err := os.Chown(name, 65534, 65534); err != nil {
				t.Fatal(err)
			}
		}
	}
	reach(t, dir)
	asNobody(t, func() {
		r, err := Range(dir, always, forever, func(Snapshot) error { return nil })
		if !errors.Is(err, fs.ErrPermission) || r.Snapshots != 2 || r.Damaged != 1 {
			t.Errorf("read %+v, %v, want two, one place and why", r, err)
		}
		s, err := Open(Options{Dir: dir, SegmentBytes: 100})
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		if err := s.Append(noon, nil); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.Snapshots != 3 || st.Damaged != 1 {
			t.Errorf("stats are %+v, want three snapshots and one place", st)
		}
	})
	all, _ := readDir(t, dir, always, forever)
	if n := len(all); n != 4 || all[3].Sequence <= all[2].Sequence {
		t.Errorf("holds %v, want the new one behind what could not be read", sequences(all))
	}
}

// reach lets others pass through the folders that the test made above dir.
func reach(t *testing.T, dir string) {
	t.Helper()
	for p := filepath.Dir(dir); p != os.TempDir() && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDeletedByHand(t *testing.T) {
	s := open(t, Options{SegmentBytes: 100})
	for range 3 {
		s.add(t, noon, payload(0, 100))
	}
	for _, name := range segmentFiles(t, s.o.Dir)[1:] {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	s.add(t, noon, nil)
	wantSequences(t, s.o.Dir, 0, 1, 4)
	if st := s.Stats(); st.Snapshots != 2 || st.Segments != 2 {
		t.Errorf("stats are %+v, want two snapshots in two segments", st)
	}
}

// A failing disk: the frame is taken back, and counted as what it was.
func TestFailingSync(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fail   error
		full   bool
		reason string
	}{
		{"quota", unix.EDQUOT, true, "disk_full"},
		{"space", unix.ENOSPC, true, "disk_full"},
		{"disk", unix.EIO, false, "write"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := open(t, Options{})
			s.add(t, noon, payload(1, 100))
			s.sync = func(*os.File) error { return tc.fail }
			err := s.Append(noon, payload(2, 100))
			if !errors.Is(err, tc.fail) || errors.Is(err, ErrFull) != tc.full {
				t.Errorf("got %v", err)
			}
			if n := s.Stats().Failures[tc.reason]; n != 1 {
				t.Errorf("failures are %v", s.Stats().Failures)
			}
			wantSequences(t, s.o.Dir, 0, 1)
			s.sync = fdatasync
			s.add(t, noon, payload(2, 100))
			wantSequences(t, s.o.Dir, 0, 1, 2)
		})
	}
}

// Where not even cutting works, the segment ends there and its number is not used
// again.
func TestFailingUndo(t *testing.T) {
	s := open(t, Options{})
	s.add(t, noon, payload(1, 100))
	s.sync = func(f *os.File) error { return errors.Join(unix.EIO, f.Close()) }
	if err := s.Append(noon, payload(2, 100)); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
	s.sync = fdatasync
	s.add(t, noon, payload(3, 100))
	wantSequences(t, s.o.Dir, 0, 1, 2, 3) // 2 was written whole, though not said to be
	if n := len(segmentFiles(t, s.o.Dir)); n != 2 {
		t.Errorf("there are %d segments, want 2", n)
	}
}
