// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, appendUntilKilled(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// noon is when the tests begin by the wall clock.
var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

var (
	always  = time.Unix(0, -1<<63)
	forever = time.Unix(0, 1<<63-1)
)

// open opens a store and closes it at the end of the test.
func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// add appends, or ends the test.
func (s *Store) add(t *testing.T, at time.Time, payload []byte) {
	t.Helper()
	if err := s.Append(at, payload); err != nil {
		t.Fatal(err)
	}
}

// payload is n bytes (at least 8) that tell i.
func payload(i uint64, n int) []byte {
	b := bytes.Repeat([]byte{byte(i)}, n)
	binary.LittleEndian.PutUint64(b, i)
	return b
}

// readDir collects what is within [from, to) of a folder.
func readDir(t *testing.T, dir string, from, to time.Time) ([]Snapshot, Read) {
	t.Helper()
	var out []Snapshot
	r, err := Range(dir, from, to, func(s Snapshot) error {
		s.Payload = bytes.Clone(s.Payload)
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Snapshots != len(out) {
		t.Errorf("handed out %d snapshots and says %d", len(out), r.Snapshots)
	}
	return out, r
}

// wantSequences checks which snapshots a folder holds, by sequence number, and how
// many places are damaged.
func wantSequences(t *testing.T, dir string, damaged uint64, want ...uint64) {
	t.Helper()
	all, r := readDir(t, dir, always, forever)
	if got := sequences(all); fmt.Sprint(got) != fmt.Sprint(want) || r.Damaged != damaged {
		t.Errorf("holds %v with %d damaged places, want %v with %d", got, r.Damaged, want, damaged)
	}
}

func sequences(all []Snapshot) []uint64 {
	var out []uint64
	for _, s := range all {
		out = append(out, s.Sequence)
	}
	return out
}

// upTo is first, first+1, ... last.
func upTo(first, last uint64) []uint64 {
	var out []uint64
	for i := first; i <= last; i++ {
		out = append(out, i)
	}
	return out
}

// segmentFiles returns the names of the segments, oldest first.
func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// change rewrites a file.
func change(t *testing.T, name string, f func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, f(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// asNobody runs f with the file rights of nobody, or skips.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("changing the user needs root")
	}
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := errors.Join(unix.Setfsgid(65534), unix.Setfsuid(65534)); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
