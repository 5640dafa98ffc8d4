// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// frames is what a segment of those sequence numbers holds; payloads tell them.
func frames(of ...uint64) []byte {
	var b []byte
	for _, n := range of {
		b = appendFrame(b, Snapshot{Sequence: n, Time: noon, Boot: 1, SinceBoot: 1, Payload: payload(n, 100)})
	}
	return b
}

// resealed is one frame of 100 bytes whose header was changed and has the right
// checksum for it.
func resealed(n uint64, f func(b []byte)) []byte {
	b := frames(n)
	f(b)
	binary.LittleEndian.PutUint32(b[headerLen-4:], crc32.Checksum(b[:headerLen-4], castagnoli))
	return b
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestScan(t *testing.T) {
	const frame = headerLen + 108 - 8
	flip := func(b []byte, at int) []byte { b[at] ^= 1; return b }
	lying := func(n uint32) []byte {
		return resealed(9, func(b []byte) { binary.LittleEndian.PutUint32(b[12:], n) })
	}
	for _, tc := range []struct {
		name    string
		file    []byte
		want    []uint64
		damaged uint64
		torn    bool
	}{
		{"empty", nil, nil, 0, false},
		{"intact", frames(1, 2, 3), upTo(1, 3), 0, false},
		{"payload", flip(frames(1, 2, 3), frame+headerLen+5), []uint64{1, 3}, 1, false},
		{"header", flip(frames(1, 2, 3), frame+20), []uint64{1, 3}, 1, false},
		{"magic", flip(frames(1, 2, 3), frame), []uint64{1, 3}, 1, false},
		{"neighbours", flip(flip(frames(1, 2, 3, 4), frame), 2*frame), []uint64{1, 4}, 1, false},
		{"two places", flip(flip(frames(1, 2, 3, 4), 0), 2*frame), []uint64{2, 4}, 2, false},
		{"last payload", flip(frames(1, 2), frame+headerLen), []uint64{1}, 1, false},
		{"noise before", cat([]byte("noise"), frames(1)), []uint64{1}, 1, false},
		{"noise behind", cat(frames(1), []byte("noise")), []uint64{1}, 1, false},
		{"zeros behind", cat(frames(1), make([]byte, 5000)), []uint64{1}, 1, false},
		{"magics", cat(bytes.Repeat(magic, 100), frames(1)), []uint64{1}, 1, false},
		{"half a magic", cat(magic[:5], frames(1)), []uint64{1}, 1, false},
		{"torn magic", cat(frames(1), magic[:5]), []uint64{1}, 0, true},
		{"torn header", cat(frames(1), frames(2)[:headerLen-1]), []uint64{1}, 0, true},
		{"torn payload", cat(frames(1), frames(2)[:frame-1]), []uint64{1}, 0, true},
		{"torn behind noise", cat([]byte("noise"), frames(2)[:frame-1]), nil, 1, false},
		{"torn in the middle", cat(frames(1)[:frame-30], frames(2)), []uint64{2}, 1, false},
		{"too long", cat(lying(MaxPayload+1), frames(1)), []uint64{1}, 1, false},
		{"longest length", cat(lying(1<<32-1), frames(1)), []uint64{1}, 1, false},
		{"longer than there is", cat(lying(MaxPayload), frames(1)), []uint64{1}, 1, false},
		{"over the next", cat(lying(150), frames(1, 2)), []uint64{1, 2}, 1, false},
		{"shorter", cat(lying(10), frames(1)), []uint64{1}, 1, false},
		{"other version", cat(resealed(9, func(b []byte) { b[8] = 2 }), frames(1)), []uint64{1}, 1, false},
		{"short header", cat(resealed(9, func(b []byte) { b[10] = headerLen - 1 }), frames(1)), []uint64{1}, 1, false},
		{"long header", cat(resealed(9, func(b []byte) { b[10], b[11] = 0xff, 0xff }), frames(1)), []uint64{1}, 1, false},
		{"frame in a payload", appendFrame(nil, Snapshot{Sequence: 1, Time: noon, Payload: frames(7)}), []uint64{1}, 0, false},
		{"far apart", cat(frames(1), make([]byte, 2*maxFrame), frames(2)), []uint64{1, 2}, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []uint64
			found, err := newScanner().scan(iotest.HalfReader(bytes.NewReader(tc.file)), func(s Snapshot) error {
				got = append(got, s.Sequence)
				return nil
			})
			if err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) || found.damaged != tc.damaged || found.torn != tc.torn {
				t.Errorf("found %v, %+v, %v; want %v, %d damaged, torn %v", got, found, err, tc.want, tc.damaged, tc.torn)
			}
		})
	}
}

// A later version may add to the header.
func TestLongerHeader(t *testing.T) {
	b := frames(5)[:headerLen-4]
	body := payload(5, 100)
	b[10] = headerLen + 8
	b = append(b, "newer---"...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = append(b, body...)
	n := 0
	found, err := newScanner().scan(bytes.NewReader(cat(b, frames(6))), func(s Snapshot) error {
		n++
		if !bytes.Equal(s.Payload, payload(s.Sequence, 100)) {
			t.Errorf("snapshot %d is not as written", s.Sequence)
		}
		return nil
	})
	if err != nil || n != 2 || found.damaged != 0 {
		t.Errorf("found %d, %+v, %v; want 2 intact", n, found, err)
	}
}

func TestReadError(t *testing.T) {
	n := 0
	r := iotest.TimeoutReader(bytes.NewReader(cat(frames(1, 2, 3), make([]byte, 2*maxFrame)))) // fails at the second read
	found, err := newScanner().scan(r, func(Snapshot) error { n++; return nil })
	if !errors.Is(err, iotest.ErrTimeout) || n != 3 {
		t.Errorf("found %d, %+v, %v; want what was read and the error", n, found, err)
	}
}

// Lengths that lie cost no memory beyond the one buffer.
func TestBoundedMemory(t *testing.T) {
	dir := t.TempDir()
	lie := resealed(9, func(b []byte) { binary.LittleEndian.PutUint32(b[12:], MaxPayload) })[:headerLen]
	for i := range 8 {
		g := segment{first: uint64(i + 1)}
		b := cat(bytes.Repeat(lie, 5), bytes.Repeat(frames(uint64(i+1)), 20_000))
		if err := os.WriteFile(g.path(dir), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := Range(dir, always, forever, func(Snapshot) error { return nil })
	runtime.ReadMemStats(&after)
	if err != nil || r.Snapshots != 160_000 || r.Damaged != 8 {
		t.Fatalf("read %+v, %v", r, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > maxFrame+1<<20 {
		t.Errorf("reading 25 MB allocated %d bytes, want one buffer", n)
	}
}

// A crash can leave any part of the last frame.
func TestEveryCut(t *testing.T) {
	whole := frames(1, 2, 3)
	two := len(frames(1, 2))
	for n := two; n < len(whole); n++ {
		dir := t.TempDir()
		name := (&segment{first: 1}).path(dir)
		if err := os.WriteFile(name, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		wantSequences(t, dir, 0, 1, 2)
		s := open(t, Options{Dir: dir})
		s.sync = noSync
		if st, err := os.Stat(name); err != nil || st.Size() != int64(two) || s.Stats().Damaged != 0 {
			t.Fatalf("cut at %d: %d bytes left, %+v, want %d and no damage", n, st.Size(), s.Stats(), two)
		}
		s.add(t, noon, payload(3, 100))
		wantSequences(t, dir, 0, 1, 2, 3)
		s.Close()
	}
}

// Damage in the middle of a store: the others are read, one place is counted, by a
// reader and on opening, and what is appended then is read too.
func TestDamagedStore(t *testing.T) {
	s := open(t, Options{SegmentBytes: 1000})
	dir := s.o.Dir
	for i := range uint64(30) {
		s.add(t, noon, payload(i, 100))
	}
	s.Close()
	files := segmentFiles(t, dir)
	middle := files[len(files)/2]
	change(t, middle, func(b []byte) []byte { b[300] ^= 0x10; return b })
	all, r := readDir(t, dir, always, forever)
	if len(all) != 29 || r.Damaged != 1 {
		t.Errorf("read %d and %d places, want 29 and 1", len(all), r.Damaged)
	}
	s = open(t, Options{Dir: dir, SegmentBytes: 1000})
	s.add(t, noon, nil)
	if st := s.Stats(); st.Snapshots != 30 || st.Damaged != 1 {
		t.Errorf("stats are %+v, want 30 and 1", st)
	}

	t.Run("cut within", func(t *testing.T) {
		s.Close()
		change(t, files[0], func(b []byte) []byte { return b[:len(b)-1] })
		if _, r := readDir(t, dir, always, forever); r.Damaged != 2 {
			t.Errorf("%d places, want 2: only the newest segment's end may be one being written", r.Damaged)
		}
		if s := open(t, Options{Dir: dir}); s.Stats().Damaged != 2 {
			t.Errorf("%d places on opening, want 2", s.Stats().Damaged)
		}
	})
}

func TestOtherFiles(t *testing.T) {
	s := open(t, Options{})
	s.add(t, noon, nil)
	dir := s.o.Dir
	for _, name := range []string{"1.seg", "0000000000000000000x.seg", "00000000000000000009.seg.tmp", "99999999999999999999.seg"} {
		if err := os.WriteFile(filepath.Join(dir, name), frames(7), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo((&segment{first: 8}).path(dir), 0o600); err != nil {
		t.Fatal(err)
	}
	wantSequences(t, dir, 0, 1)
}

// FuzzSegment plants two frames in noise. They are found by a reader, and by a
// writer that goes on with the file.
func FuzzSegment(f *testing.F) {
	f.Add([]byte{}, []byte{}, []byte{})
	f.Add([]byte("noise"), bytes.Repeat(magic, 3), magic[:5])
	f.Add(frames(7), frames(7)[:80], frames(8)[:150])
	f.Add(resealed(9, func(b []byte) { b[14] = 0x40 })[:headerLen], resealed(9, func(b []byte) { b[12] = 200 }), make([]byte, 300))
	f.Fuzz(func(t *testing.T, before, between, behind []byte) {
		dir := t.TempDir()
		file := cat(before, frames(101), between, frames(102), behind)
		if err := os.WriteFile((&segment{first: 1}).path(dir), file, 0o600); err != nil {
			t.Fatal(err)
		}
		planted := func(want ...uint64) {
			all, _ := readDir(t, dir, always, forever)
			for _, s := range all {
				if len(want) > 0 && s.Sequence == want[0] && bytes.Equal(s.Payload, payload(want[0], 100)) {
					want = want[1:]
				}
			}
			if len(want) > 0 {
				t.Errorf("not found: %v", want)
			}
		}
		planted(101, 102)
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.sync = noSync
		next := s.next
		s.add(t, noon, payload(next, 100))
		planted(101, 102, next)
	})
}
