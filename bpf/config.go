// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// Flag tells the programs which signals are there (enum config_flag).
type Flag uint64

// The flags.
const (
	FlagSendStart Flag = 1 << iota
	FlagAcceptExit
	FlagAcceptReturn
	FlagSched
	FlagContent
)

// Tracing says which exchanges and gaps leave the kernel as records.
type Tracing struct {
	TTFT time.Duration // a longer TTFT does; 0: none for its length
	Gap  time.Duration // a longer gap does; 0: none for its length
	// Sample traces one exchange in this many, rounded up to a power of two;
	// 0: none, 1: every one.
	Sample  uint32
	AllGaps bool // every gap, however short
}

// configMu: the kernel only reads these fields, all writers are here.
var configMu sync.Mutex

func (m *Maps) changeConfig(f func(*mapsConfig)) error {
	configMu.Lock()
	defer configMu.Unlock()
	var c mapsConfig
	cm := m.collection.Maps["config_map"]
	if err := cm.Lookup(uint32(0), &c); err != nil {
		return fmt.Errorf("reading the programs' configuration: %w", err)
	}
	f(&c)
	if err := cm.Update(uint32(0), &c, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("changing the programs' configuration: %w", err)
	}
	return nil
}

// Trace sets what is traced.
func (m *Maps) Trace(t Tracing) error {
	return m.changeConfig(func(c *mapsConfig) {
		c.TtftThreshold, c.GapThreshold, c.SampleMask = math.MaxUint64, math.MaxUint64, math.MaxUint32
		if t.TTFT > 0 {
			c.TtftThreshold = uint64(t.TTFT)
		}
		if t.Gap > 0 {
			c.GapThreshold = uint64(t.Gap)
		}
		if t.AllGaps {
			c.GapThreshold = 0
		}
		if t.Sample > 0 {
			mask := uint64(1)
			for mask < uint64(t.Sample) {
				mask <<= 1
			}
			c.SampleMask = mask - 1
		}
	})
}

// SetFlag tells the programs that a signal is there, or is not any more.
func (m *Maps) SetFlag(f Flag, on bool) error {
	return m.changeConfig(func(c *mapsConfig) {
		if on {
			c.Flags |= uint64(f)
		} else {
			c.Flags &^= uint64(f)
		}
	})
}

// Objectives are what exchanges are held to; 0: to nothing.
type Objectives struct{ TTFT, Gap time.Duration }

// SetObjectives sets what the programs hold exchanges to.
func (m *Maps) SetObjectives(o Objectives) error {
	return m.changeConfig(func(c *mapsConfig) {
		c.TtftObjective, c.GapObjective = math.MaxUint64, math.MaxUint64
		if o.TTFT > 0 {
			c.TtftObjective = uint64(o.TTFT)
		}
		if o.Gap > 0 {
			c.GapObjective = uint64(o.Gap)
		}
	})
}

// Stirred is what happened since the maps were made that user space may have to
// answer.
type Stirred struct {
	Backlogged uint64 // sends that returned with data that had not left
	Listens    uint64 // sockets of any process that began to listen, and watched ones that ended to
	Forks      uint64 // threads and processes that watched ones began
}

// Stirred reads the counters.
func (m *Maps) Stirred() (Stirred, error) {
	var s mapsStirred
	if err := m.collection.Maps["stirred_map"].Lookup(uint32(0), &s); err != nil {
		return Stirred{}, fmt.Errorf("reading what stirred: %w", err)
	}
	return Stirred{Backlogged: s.Backlogged, Listens: s.Listens, Forks: s.Forks}, nil
}

// Listening is one of Stirred.Listens.
type Listening struct {
	NetNS uint32
	Port  uint16
	PID   int // of the process that began to listen; 0: a watched socket ended
}

// listenings is how many of the newest are kept (LISTENINGS in bpf/include/config.h).
const listenings = 64

// Listenings returns those from number since up to, not with, now. ok is false where
// some of them are no longer kept.
func (m *Maps) Listenings(since, now uint64) (list []Listening, ok bool, err error) {
	if now-since > listenings {
		return nil, false, nil
	}
	for n := since; n < now; n++ {
		var l mapsListening
		if err := m.collection.Maps["listening_map"].Lookup(uint32(n%listenings), &l); err != nil {
			return nil, false, fmt.Errorf("reading what listens: %w", err)
		}
		list = append(list, Listening{NetNS: l.Netns, Port: l.Port, PID: int(l.Tgid)})
	}
	return list, true, nil
}

// Flagged sets f while the rung is in use.
func (m *Maps) Flagged(f Flag, r ladder.Rung) ladder.Rung {
	return ladder.Rung{Name: r.Name, Attach: func() (io.Closer, error) {
		c, err := r.Attach()
		if err != nil {
			return nil, err
		}
		if err := m.SetFlag(f, true); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return &flagged{m, f, c}, nil
	}}
}

type flagged struct {
	maps *Maps
	flag Flag
	io.Closer
}

func (f *flagged) Close() error {
	return errors.Join(f.maps.SetFlag(f.flag, false), f.Closer.Close())
}
