// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

func encode(t testing.TB, r *mapsRecord) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sample is a good record of n steps.
func sample(n uint32) *mapsRecord {
	r := &mapsRecord{
		T: 5_000, Begin: 1_000, Cookie: 7, Netns: 4026531840, Exchange: 3, Port: 2, StepCount: n,
		Pos: 99, Kind: uint16(attribution.TraceTTFT), RemotePort: 4321, Family: familyIPv6,
	}
	r.Stages[attribution.Engine] = 4_000
	copy(r.Remote[:], netip.MustParseAddr("2001:db8::1").AsSlice())
	for i := range n {
		r.Steps[i%recorderSteps].T = uint64(i)
		r.Steps[i%recorderSteps].Pos = i
		r.Steps[i%recorderSteps].Kind = uint16(attribution.Arrived)
	}
	return r
}

func TestDecodeRecord(t *testing.T) {
	for _, c := range []struct {
		n                  uint32
		first, steps, lost int
	}{{1, 0, 1, 0}, {31, 0, 31, 0}, {32, 0, 32, 0}, {33, 1, 32, 1}, {100, 68, 32, 68}} {
		tr, err := DecodeRecord(encode(t, sample(c.n)))
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.Steps) != c.steps || tr.Lost != c.lost {
			t.Errorf("of %d steps %d are here and %d lost, want %d and %d", c.n, len(tr.Steps), tr.Lost, c.steps, c.lost)
		}
		for i, s := range tr.Steps {
			if int(s.Time) != c.first+i {
				t.Fatalf("of %d steps, step %d is number %d, want %d: oldest first", c.n, i, int(s.Time), c.first+i)
			}
		}
		if tr.Counted.Total != 4*time.Microsecond || tr.Counted.Stages[attribution.Engine] != 4*time.Microsecond ||
			tr.Remote.String() != "[2001:db8::1]:4321" || tr.Port != 2 || tr.Exchange != 3 || tr.Interval {
			t.Errorf("the record reads as %+v", tr)
		}
	}
}

func TestDecodeRecordAddresses(t *testing.T) {
	r := sample(1)
	copy(r.Remote[:], netip.MustParseAddr("::ffff:192.0.2.1").AsSlice())
	if tr, err := DecodeRecord(encode(t, r)); err != nil || tr.Remote.String() != "192.0.2.1:4321" {
		t.Errorf("a v4-mapped address reads as %v, %v", tr.Remote, err)
	}
	r.Family, r.Remote, r.Flags = 2, [16]uint8{192, 0, 2, 7}, flagInterval
	if tr, err := DecodeRecord(encode(t, r)); err != nil || tr.Remote.String() != "192.0.2.7:4321" || !tr.Interval {
		t.Errorf("an IPv4 address reads as %v, interval %v, %v", tr.Remote, tr.Interval, err)
	}
}

func TestDecodeRecordRefuses(t *testing.T) {
	bad := map[string]func(*mapsRecord){
		"no kind":           func(r *mapsRecord) { r.Kind = 0 },
		"another kind":      func(r *mapsRecord) { r.Kind = 3 },
		"no such port":      func(r *mapsRecord) { r.Port = MaxPorts },
		"ends before begun": func(r *mapsRecord) { r.T = r.Begin - 1 },
		"without a step":    func(r *mapsRecord) { r.StepCount = 0 },
	}
	for name, spoil := range bad {
		r := sample(5)
		spoil(r)
		if tr, err := DecodeRecord(encode(t, r)); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: read as %+v, %v", name, tr, err)
		}
	}
	whole := encode(t, sample(5))
	for _, b := range [][]byte{nil, whole[:1], whole[:len(whole)-1], append(bytes.Clone(whole), 0)} {
		if _, err := DecodeRecord(b); !errors.Is(err, ErrRecord) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte{})
	f.Add(encode(f, sample(5)))
	f.Add(encode(f, sample(1<<31)))
	f.Add(bytes.Repeat([]byte{0xff}, binary.Size(mapsRecord{})))
	f.Fuzz(func(t *testing.T, b []byte) {
		tr, err := DecodeRecord(b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Errorf("the error wraps no sentinel: %v", err)
			}
			return
		}
		if len(tr.Steps) > recorderSteps || tr.Port >= MaxPorts || tr.Counted.Total < 0 {
			t.Errorf("read as %+v", tr)
		}
		// What decodes must be replayed without harm too.
		if _, err := tr.Breakdown(attribution.Options{}); err != nil &&
			!errors.Is(err, attribution.ErrTruncated) && !errors.Is(err, attribution.ErrStep) && !errors.Is(err, attribution.ErrTime) {
			t.Errorf("the breakdown's error wraps no sentinel: %v", err)
		}
	})
}

// TestWait: the reader of the ring waits as long as it was told, or until it is to end.
func TestWait(t *testing.T) {
	m := newMaps(t)
	r, err := m.NewRecords()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 2 {
		begun := time.Now()
		if err := r.Wait(5 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 5*time.Millisecond {
			t.Errorf("it waited for %v, told 5ms", took)
		}
	}
	ended := make(chan error)
	go func() { ended <- r.Wait(time.Hour) }()
	time.Sleep(time.Millisecond)
	r.EndWait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := r.Wait(time.Hour); err != nil { // ends at once, or the test does not
		t.Error(err)
	}
}
