// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// Maps are the kernel maps that the programs of all signals share.
type Maps struct {
	collection *ebpf.Collection
	programs   map[string]*ebpf.Program // attached, by name
	walks      uint64                   // over the open sockets

	reading sync.Mutex
	port    mapsPort // what is being read: 100 KiB, used again and again
}

// NewMaps creates the shared maps. Errors wrap the ladder's sentinels.
func NewMaps() (*Maps, error) {
	// Before 5.11 maps count against RLIMIT_MEMLOCK; a failure shows below.
	_ = rlimit.RemoveMemlock()
	spec, err := loadMaps()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded maps: %w", err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("creating the maps: %w", ladder.Explain(err))
	}
	return &Maps{collection: c, programs: map[string]*ebpf.Program{}}, nil
}

// Close frees the maps and with them all marks.
func (m *Maps) Close() error {
	m.collection.Close()
	return nil
}

// Load loads the named programs of an object with the shared maps in place of
// its own.
func (m *Maps) Load(load func() (*ebpf.CollectionSpec, error), names ...string) (*ebpf.Collection, error) {
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded object: %w", err)
	}
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	for n := range spec.Programs {
		if !want[n] {
			delete(spec.Programs, n)
		}
	}
	replace := map[string]*ebpf.Map{}
	for n := range spec.Maps {
		if shared, ok := m.collection.Maps[n]; ok {
			replace[n] = shared
		}
	}
	return ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
}

// Attach loads the named programs and attaches each to the hook it names. On an
// error nothing stays attached.
func (m *Maps) Attach(load func() (*ebpf.CollectionSpec, error), names ...string) (io.Closer, error) {
	c, err := m.Load(load, names...)
	if err != nil {
		return nil, err
	}
	a := &attached{maps: m, collection: c}
	for _, n := range names {
		l, err := link.AttachTracing(link.TracingOptions{Program: c.Programs[n]})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("attaching %s: %w", n, err), a.Close())
		}
		a.links = append(a.links, l)
		m.programs[n] = c.Programs[n]
	}
	return a, nil
}

// Rung makes a ladder rung of programs that stand or fall together.
func (m *Maps) Rung(name string, load func() (*ebpf.CollectionSpec, error), programs ...string) ladder.Rung {
	return ladder.Rung{Name: name, Attach: func() (io.Closer, error) { return m.Attach(load, programs...) }}
}

type attached struct {
	maps       *Maps
	collection *ebpf.Collection
	links      ladder.Closers
}

func (a *attached) Close() error {
	err := a.links.Close()
	for n, p := range a.collection.Programs {
		if a.maps.programs[n] == p {
			delete(a.maps.programs, n)
		}
	}
	a.collection.Close()
	return err
}
