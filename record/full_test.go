// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 1 MiB, or skips.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all that is left but leave bytes, and returns the name of what it made.
func fill(t *testing.T, dir string, leave int64) string {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "other")
	if err := os.WriteFile(name, make([]byte, int64(st.Bavail)*st.Bsize-leave), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Nothing to free: the frame is taken back whole, and there is a next time.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "record")
	s := open(t, Options{Dir: dir})
	s.add(t, noon, payload(1, 5000))
	before := s.Stats().Bytes
	other := fill(t, disk, 8192) // room for a part of the next frame
	for range 3 {
		if err := s.Append(noon, payload(2, 50_000)); !errors.Is(err, ErrFull) {
			t.Fatalf("got %v, want ErrFull", err)
		}
		st, err := os.Stat(segmentFiles(t, dir)[0])
		if err != nil || st.Size() != before || s.Stats().Bytes != before {
			t.Errorf("%d bytes are left of a failed append (%v), want %d", st.Size(), err, before)
		}
	}
	wantSequences(t, dir, 0, 1)
	if f := s.Stats().Failures; f["disk_full"] != 3 || len(f) != 1 {
		t.Errorf("failures are %v, want 3 of disk_full", f)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	s.add(t, noon, payload(2, 50_000))
	wantSequences(t, dir, 0, 1, 2)
}

// The oldest segment makes room for the newest snapshot.
func TestFullDiskFreesTheOldest(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "record")
	s := open(t, Options{Dir: dir, SegmentBytes: 60_000})
	for i := range uint64(9) {
		s.add(t, noon, payload(i, 20_000))
	}
	wantSequences(t, dir, 0, upTo(1, 9)...) // two a segment
	had := len(segmentFiles(t, dir))
	fill(t, disk, 0)
	s.add(t, noon, payload(10, 20_000))
	all, r := readDir(t, dir, always, forever)
	if all[0].Sequence == 1 || all[len(all)-1].Sequence != 10 || r.Damaged != 0 {
		t.Errorf("holds %v, %+v, want the newest without the oldest", sequences(all), r)
	}
	if n := len(segmentFiles(t, dir)); n > had {
		t.Errorf("%d segments became %d", had, n)
	}
	if f := s.Stats().Failures; len(f) != 0 {
		t.Errorf("failures are %v, want none", f)
	}

	t.Run("once", func(t *testing.T) {
		have := s.Stats().Segments
		if err := s.Append(noon, payload(11, 500_000)); !errors.Is(err, ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		if n := s.Stats().Segments; n < have-1 {
			t.Errorf("%d segments became %d for one snapshot", have, n)
		}
	})
	t.Run("reopened", func(t *testing.T) {
		held := s.Stats().Snapshots
		s.Close()
		if st := open(t, Options{Dir: dir}).Stats(); st.Snapshots != held || st.Damaged != 0 {
			t.Errorf("holds %+v, want %d snapshots and no damage", st, held)
		}
	})
}

func TestFullDiskOnOpening(t *testing.T) {
	disk := smallDisk(t)
	fill(t, disk, 0)
	s := open(t, Options{Dir: filepath.Join(disk, "record")}) // a folder and the lock take no block of a tmpfs
	if err := s.Append(noon, payload(1, 100)); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
}
