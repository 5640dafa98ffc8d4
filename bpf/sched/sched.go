// SPDX-License-Identifier: Apache-2.0

// Package sched watches when the threads of watched processes are woken and run.
package sched

import (
	"fmt"
	"io"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// WakeToRun is the signal of who was woken by an arrival and when it ran.
func WakeToRun(m *bpf.Maps) ladder.Signal {
	return ladder.Signal{Name: "wake_to_run", Rungs: []ladder.Rung{
		m.Flagged(bpf.FlagSched, m.Rung("tp_btf/sched_waking+sched_switch", loadSched, "waking", "switched", "forked")),
	}}
}

// Marker marks the threads that Maps.NameThreads has named.
type Marker struct{ iter *bpf.Iterator }

// NewMarker loads the task iterator.
func NewMarker(m *bpf.Maps) (*Marker, error) {
	it, err := m.NewIterator(loadSched, "mark_threads")
	if err != nil {
		return nil, fmt.Errorf("loading the task iterator: %w", err)
	}
	return &Marker{it}, nil
}

// Mark walks all threads once.
func (k *Marker) Mark() error {
	return k.iter.Run(func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

// Close unloads the iterator.
func (k *Marker) Close() error { return k.iter.Close() }
