// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"
)

// childDir names, in the environment of a child, the folder that it appends to.
const childDir = "VELO_AGENT_TEST_RECORD"

// noSync is for tests of processes that end, not hosts: the page cache outlives
// them. Without waiting for the disk most kills come within a write, where they
// can tear a frame.
func noSync(*os.File) error { return nil }

// killOptions make a store that begins and drops segments all the time.
func killOptions(dir string) Options {
	return Options{Dir: dir, MaxBytes: 8 << 20, SegmentBytes: 512 << 10}
}

// appendUntilKilled is the child: it appends without pause and says on standard output
// which sequence numbers it was promised.
func appendUntilKilled(dir string) error {
	s, err := Open(killOptions(dir))
	if err != nil {
		return err
	}
	s.sync = noSync
	for {
		n := s.next
		if err := s.Append(time.Now(), killPayload(n)); err != nil {
			return err
		}
		if _, err := os.Stdout.Write(binary.LittleEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
	}
}

// killPayload is 8 bytes to 256 KiB that tell the sequence number.
func killPayload(n uint64) []byte {
	return payload(n, 8+int(n*7919%(256<<10)))
}

func TestKilled(t *testing.T) {
	o := killOptions(t.TempDir())
	torn := 0
	acknowledged := uint64(0)
	for i := range 100 {
		acknowledged = max(acknowledged, killOne(t, o.Dir))
		files := segmentFiles(t, o.Dir)
		bytesHeld := int64(0)
		for _, name := range files {
			st, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			bytesHeld += st.Size()
		}
		found, err := newScanner().file(files[len(files)-1], 1<<40, func(Snapshot) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if found.torn {
			torn++
		}

		// What is held is without a hole, up to the last acknowledged at least, and
		// from the first on unless the store is full.
		first, last := uint64(0), uint64(0)
		r, err := Range(o.Dir, always, forever, func(s Snapshot) error {
			if first == 0 {
				first, last = s.Sequence, s.Sequence-1
			}
			if s.Sequence != last+1 || !bytes.Equal(s.Payload, killPayload(s.Sequence)) {
				t.Errorf("kill %d: snapshot %d after %d, or not as written", i, s.Sequence, last)
			}
			last = s.Sequence
			return nil
		})
		if err != nil || r.Damaged != 0 {
			t.Fatalf("kill %d: %+v, %v", i, r, err)
		}
		if last < acknowledged {
			t.Fatalf("kill %d: the last is %d, and %d was acknowledged", i, last, acknowledged)
		}
		if full := o.MaxBytes - o.SegmentBytes - 2*(256<<10); first > 1 && bytesHeld < full {
			t.Fatalf("kill %d: begins at %d with %d bytes held of %d", i, first, bytesHeld, o.MaxBytes)
		}
	}
	t.Logf("100 kills, %d snapshots acknowledged, %d of the kills tore a frame", acknowledged, torn)

	s := open(t, o)
	next := s.next
	s.add(t, noon, killPayload(next))
	all, r := readDir(t, o.Dir, noon, noon.Add(1))
	if len(all) != 1 || all[0].Sequence != next || next <= acknowledged || r.Damaged != 0 || s.Stats().Damaged != 0 {
		t.Errorf("after it all: %v, %+v, want %d alone at that time", sequences(all), r, next)
	}
}

// killOne starts a child, kills it a few milliseconds after its first snapshot, and
// returns the last sequence number that it acknowledged.
func killOne(t *testing.T, dir string) uint64 {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var last uint64
	for {
		var b [8]byte
		if _, err := io.ReadFull(out, b[:]); err != nil { // what is cut off was not said
			break
		}
		if last == 0 {
			defer time.AfterFunc(time.Duration(rand.Int64N(int64(5*time.Millisecond))), func() { cmd.Process.Kill() }).Stop()
		}
		last = binary.LittleEndian.Uint64(b[:])
	}
	err = cmd.Wait()
	if last == 0 || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the child ended by itself after %d: %v: %s", last, err, &said)
	}
	return last
}
