// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"compress/flate"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/record"
)

func windowOf(exchanges int) *diagnosis.Measured {
	var h attribution.Histogram
	for range exchanges {
		h.Add(time.Millisecond)
	}
	return &diagnosis.Measured{
		Window: 10 * time.Second, Agent: diagnosis.AgentCost{Lost: map[string]uint64{}},
		Ports: []diagnosis.Port{{Port: 80, Exchanges: new(uint64(exchanges)), TTFT: &h}},
	}
}

func TestWindowSurvives(t *testing.T) {
	m := windowOf(30)
	b, err := encodeWindow(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeWindow(b)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, bad := range map[string][]byte{"noise": []byte("noise"), "cut": b[:len(b)/2], "nothing": nil, "a bomb": bomb(t)} {
		if _, err := decodeWindow(bad); err == nil {
			t.Errorf("%s was decoded", name)
		}
	}
}

// bomb inflates to more than a snapshot may.
func bomb(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	block := bytes.Repeat([]byte(" "), 1<<20)
	for range maxWindow>>20 + 1 {
		if _, err := w.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadRecord(t *testing.T) {
	dir := t.TempDir()
	s, err := record.Open(record.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 6 {
		b, err := encodeWindow(windowOf(i + 1))
		if i == 3 {
			b, err = []byte("damaged by its writer"), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Append(start.Add(time.Duration(i+1)*10*time.Second), b); err != nil {
			t.Fatal(err)
		}
	}
	// The windows that ended within (from, to]: the second to the fifth, of which one
	// cannot be read.
	r, err := ReadRecord(dir, start.Add(10*time.Second), start.Add(50*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if r.Snapshots != 3 || r.Damaged != 1 || *r.Ports[0].Exchanges != 2+3+5 || r.Window != 30*time.Second {
		t.Errorf("%d snapshots, %d damaged, %d exchanges in %v", r.Snapshots, r.Damaged, *r.Ports[0].Exchanges, r.Window)
	}
	if !r.From.Equal(start.Add(10*time.Second)) || !r.To.Equal(start.Add(50*time.Second)) {
		t.Errorf("from %v to %v", r.From, r.To)
	}
	if _, err := ReadRecord(dir, start.Add(-time.Hour), start); !errors.Is(err, ErrNotThere) {
		t.Errorf("an empty span: %v", err)
	}
	if err := r.Of(Watch{Ports: []uint16{81}}); !errors.Is(err, ErrNotThere) {
		t.Errorf("a port that was not watched: %v", err)
	}
}
