// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// An Entry is what a victim measured of one answered request. Times are
// nanoseconds of CLOCK_MONOTONIC.
type Entry struct {
	RemotePort int    `json:"remote_port"` // the client's port
	Ordinal    int    `json:"ordinal"`     // of the request on its connection, from 1
	Case       string `json:"case"`
	Reads      int    `json:"reads"`    // reads that the request took
	Accepted   int64  `json:"accepted"` // accept had returned
	ReadAt     int64  `json:"read_at"`  // the whole request was read
	// ServedRunDelay is how long the serving thread waited for its CPU while it
	// answered (C only): it lies in engine and send_queue, not in wake_to_run.
	ServedRunDelay int64    `json:"served_run_delay"`
	Injected       Injected `json:"injected"`
	Writes         []Write  `json:"writes"` // the first 64
}

// Injected is the measured disturbance, by the stage in which it belongs; 0
// means that the entry does not apply.
type Injected struct {
	AcceptWait int64 `json:"accept_wait,omitempty"` // from poll's report to the call of accept
	Reader     int64 `json:"reader,omitempty"`      // before the last read of the request
	Handoff    int64 `json:"runtime_handoff,omitempty"`
	Engine     int64 `json:"engine,omitempty"`
	SendQueue  int64 `json:"send_queue,omitempty"`  // inside the writes, where the case sets sizes
	WakeToRun  int64 `json:"wake_to_run,omitempty"` // run delay across the last wait for data
}

// A Write is one write(2) of the victim (in Go, one conn.Write).
type Write struct {
	Before int64  `json:"before"`
	After  int64  `json:"after"`
	Bytes  int    `json:"bytes"`
	What   string `json:"what"` // interim, headers, role, content, done, end
}

// Log returns the entries written so far, oldest first. The slice is the
// caller's to read, not to change.
func (v *Victim) Log() ([]Entry, error) {
	v.logLock.Lock()
	defer v.logLock.Unlock()
	f, err := os.Open(v.logPath)
	if err != nil {
		return nil, fmt.Errorf("opening the victim's log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(v.logRead, io.SeekStart); err != nil {
		return nil, fmt.Errorf("seeking in the victim's log: %w", err)
	}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err != nil { // io.EOF; a line without its end is still being written
			return v.entries[:len(v.entries):len(v.entries)], nil
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading the victim's log: %w", err)
		}
		v.entries = append(v.entries, e)
		v.logRead += int64(len(line))
	}
}

// WaitLog returns the log once it has at least n entries: a victim writes an
// entry after the client has read the last byte of the answer.
func (v *Victim) WaitLog(ctx context.Context, n int) ([]Entry, error) {
	for {
		entries, err := v.Log()
		if err != nil || len(entries) >= n {
			return entries, err
		}
		select {
		case <-ctx.Done():
			return entries, fmt.Errorf("waiting for %d log entries, have %d: %w", n, len(entries), ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}
