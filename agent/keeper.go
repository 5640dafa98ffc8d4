// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/config"
	"github.com/velo-agent/velo-agent/record"
)

// keeper writes windows into the record. One that cannot be opened is tried again with
// each window: a folder is mended and a disk cleared while the daemon runs.
type keeper struct {
	options record.Options
	log     *slog.Logger

	store    atomic.Pointer[record.Store] // nil: it could not be opened yet
	unopened atomic.Uint64                // times that it could not be
	failing  bool                         // as it was told last; of who writes
}

// newKeeper opens the record; nil: it is switched off.
func newKeeper(c *config.Config, log *slog.Logger) *keeper {
	if !c.Record.Enabled {
		return nil
	}
	log = log.With("component", "record")
	k := &keeper{log: log, options: record.Options{Dir: c.Record.Dir, Keep: c.Record.Keep, MaxBytes: int64(c.Record.MaxBytes), Log: log}}
	_, err := k.open()
	k.tell(err)
	return k
}

func (k *keeper) open() (*record.Store, error) {
	if s := k.store.Load(); s != nil {
		return s, nil
	}
	s, err := record.Open(k.options)
	if err != nil {
		k.unopened.Add(1)
		return nil, err
	}
	k.store.Store(s)
	return s, nil
}

// keep writes a window down. One goroutine does.
func (k *keeper) keep(w window) { k.tell(k.write(w)) }

func (k *keeper) write(w window) error {
	s, err := k.open()
	if err != nil {
		return err
	}
	b, err := encodeWindow(w.Measured)
	if err != nil {
		return err
	}
	if err := s.Append(w.at, b); err != nil {
		return fmt.Errorf("writing a snapshot: %w", err)
	}
	return nil
}

// tell logs when windows begin to be lost, and when they are kept again.
func (k *keeper) tell(err error) {
	if failing := err != nil; failing != k.failing {
		k.failing = failing
		if failing {
			k.log.Error("windows are not recorded; trying again with each", "error", err)
		} else {
			k.log.Info("windows are recorded again")
		}
	}
}

func (k *keeper) state() *collectors.Record {
	out := &collectors.Record{Failures: map[string]uint64{"open": k.unopened.Load()}}
	if s := k.store.Load(); s != nil {
		st := s.Stats()
		maps.Copy(out.Failures, st.Failures)
		out.Failures["damaged"] = st.Damaged
		out.Snapshots, out.Bytes, out.Oldest = uint64(st.Snapshots), st.Bytes, st.Oldest
	}
	return out
}

func (k *keeper) close() error {
	if s := k.store.Load(); s != nil {
		return s.Close()
	}
	return nil
}
