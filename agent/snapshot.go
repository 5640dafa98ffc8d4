// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/record"
)

// A snapshot of the record is one window: its figures as JSON, deflated.

// maxWindow bounds what a snapshot may inflate to.
const maxWindow = 64 << 20

// deflaters are kept: one takes longer to make than to use.
var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // that level is known
	return w
}}

func encodeWindow(m *diagnosis.Measured) ([]byte, error) {
	var b bytes.Buffer
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&b)
	if err := errors.Join(json.NewEncoder(w).Encode(m), w.Close()); err != nil {
		return nil, fmt.Errorf("encoding a snapshot: %w", err)
	}
	return b.Bytes(), nil
}

func decodeWindow(b []byte) (*diagnosis.Measured, error) {
	r := flate.NewReader(bytes.NewReader(b))
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxWindow+1))
	if err == nil && len(text) > maxWindow {
		err = fmt.Errorf("more than %d bytes", maxWindow)
	}
	var m diagnosis.Measured
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding a snapshot: %w", err)
	}
	return &m, nil
}

// Recorded is what the record holds of a span.
type Recorded struct {
	*diagnosis.Measured
	From, To  time.Time // of the snapshots that were found
	Snapshots int
	Damaged   int // places of the record, or snapshots, that could not be read
}

// ranger reads a record: one that a daemon has open, or a folder.
type ranger func(from, to time.Time, f func(record.Snapshot) error) (record.Read, error)

// ReadRecord adds up the windows that ended in (from, to]. ErrNotThere: none did.
func ReadRecord(dir string, from, to time.Time) (*Recorded, error) {
	return readRecord(func(a, b time.Time, f func(record.Snapshot) error) (record.Read, error) {
		return record.Range(dir, a, b, f)
	}, from, to)
}

func readRecord(read ranger, from, to time.Time) (*Recorded, error) {
	var out Recorded
	got, err := read(from.Add(1), to.Add(1), func(s record.Snapshot) error {
		m, err := decodeWindow(s.Payload)
		if err != nil {
			out.Damaged++
			return nil
		}
		if out.Snapshots == 0 {
			out.Measured, out.From = m, s.Time.Add(-m.Window)
		} else {
			out.Measured = out.Measured.Add(m)
		}
		out.To = s.Time
		out.Snapshots++
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no record: %w", ErrNotThere, err)
	}
	if err != nil && out.Snapshots == 0 {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	out.Damaged += int(got.Damaged)
	if out.Snapshots == 0 {
		return nil, fmt.Errorf("%w: the record has nothing from %s to %s; velo_agent_record_oldest_timestamp_seconds says how far back it reaches",
			ErrNotThere, from.Format(time.DateTime), to.Format(time.DateTime))
	}
	return &out, nil
}
