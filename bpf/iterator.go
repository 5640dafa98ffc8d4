// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// Iterator is a loaded iterator program that may run many times.
type Iterator struct {
	collection *ebpf.Collection
	iter       *link.Iter
}

// NewIterator loads one iterator program of an object.
func (m *Maps) NewIterator(load func() (*ebpf.CollectionSpec, error), name string) (*Iterator, error) {
	return m.newIterator(load, name, nil)
}

// NewConnIterator loads one that walks the marked sockets.
func (m *Maps) NewConnIterator(load func() (*ebpf.CollectionSpec, error), name string) (*Iterator, error) {
	return m.newIterator(load, name, m.collection.Maps["conns"])
}

func (m *Maps) newIterator(load func() (*ebpf.CollectionSpec, error), name string, over *ebpf.Map) (*Iterator, error) {
	c, err := m.Load(load, name)
	if err != nil {
		return nil, ladder.Explain(err)
	}
	it, err := link.AttachIter(link.IterOptions{Program: c.Programs[name], Map: over})
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("attaching %s: %w", name, ladder.Explain(err))
	}
	return &Iterator{c, it}, nil
}

// Run walks once, in the calling thread's network namespace, and hands the
// program's output to read.
func (it *Iterator) Run(read func(io.Reader) error) error {
	r, err := it.iter.Open()
	if err != nil {
		return fmt.Errorf("opening the iterator: %w", err)
	}
	return errors.Join(read(r), r.Close())
}

// Close unloads the program.
func (it *Iterator) Close() error {
	err := it.iter.Close()
	it.collection.Close()
	return err
}

// iteratorBuffer is what the kernel hands out at most by one read. Each read is a stop,
// at which a walk lets the sockets change and then goes on by counting.
const iteratorBuffer = 32 << 10

// ReadEach decodes fixed-size elements until the end of r. A torn last element is
// an error.
func ReadEach[T any](r io.Reader, f func(*T)) error {
	all, err := io.ReadAll(bufio.NewReaderSize(r, iteratorBuffer))
	if err != nil {
		return fmt.Errorf("reading the iterator: %w", err)
	}
	size := binary.Size(new(T))
	for len(all) >= size {
		var v T
		if _, err := binary.Decode(all[:size], binary.NativeEndian, &v); err != nil {
			return fmt.Errorf("decoding the iterator's output: %w", err)
		}
		f(&v)
		all = all[size:]
	}
	if len(all) > 0 {
		return fmt.Errorf("decoding the iterator's output: %d bytes too many", len(all))
	}
	return nil
}
