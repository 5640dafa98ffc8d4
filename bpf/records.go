// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
)

const (
	recorderSteps    = 32
	flagInterval     = 2 // CONN_ACCEPT_INTERVAL
	familyIPv6       = 10
	minimumStepCount = 1
)

// ErrRecord is a record that cannot be decoded.
var ErrRecord = errors.New("undecodable record")

// Records reads the traced tier.
type Records struct {
	ring  *ringbuf.Reader
	poll  *os.File // a copy of the map's descriptor, to wait by
	ended atomic.Bool
}

// NewRecords opens the ring.
func (m *Maps) NewRecords() (*Records, error) {
	r, err := ringbuf.NewReader(m.collection.Maps["records"])
	if err != nil {
		return nil, fmt.Errorf("opening the record ring: %w", err)
	}
	fd, err := unix.FcntlInt(uintptr(m.collection.Maps["records"].FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that the runtime waits for it without a thread
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the record ring: %w", err), r.Close())
	}
	return &Records{ring: r, poll: os.NewFile(uintptr(fd), "records")}, nil
}

// Close closes the ring.
func (r *Records) Close() error { return errors.Join(r.ring.Close(), r.poll.Close()) }

// Wait returns when d is over, when an eighth of the ring is in use, or after EndWait.
func (r *Records) Wait(d time.Duration) error {
	if err := r.poll.SetReadDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("waiting for records: %w", err)
	}
	if r.ended.Load() {
		return nil
	}
	c, err := r.poll.SyscallConn()
	if err != nil {
		return fmt.Errorf("waiting for records: %w", err)
	}
	asked := false
	err = c.Read(func(uintptr) bool {
		defer func() { asked = true }()
		return asked
	})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("waiting for records: %w", err)
	}
	return nil
}

// EndWait ends a Wait, and every later one.
func (r *Records) EndWait() {
	r.ended.Store(true)
	_ = r.poll.SetReadDeadline(time.Now()) // fails where it is closed: nobody waits then
}

// Waiting returns how many bytes are in the ring.
func (r *Records) Waiting() int { return r.ring.AvailableBytes() }

// Size returns how many bytes the ring takes.
func (r *Records) Size() int { return r.ring.BufferSize() }

// Drain hands every record that is in the ring now to f; one that cannot be
// decoded goes to bad. It never waits.
func (r *Records) Drain(f func(*attribution.Trace), bad func(error)) error {
	if r.ring.AvailableBytes() == 0 {
		return nil // without a system call
	}
	r.ring.SetDeadline(time.Unix(1, 0)) // in the past: read what is there
	for {
		rec, err := r.ring.Read()
		if err != nil {
			if isTimeout(err) {
				return nil
			}
			return fmt.Errorf("reading the record ring: %w", err)
		}
		t, err := DecodeRecord(rec.RawSample)
		if err != nil {
			bad(err)
			continue
		}
		f(t)
	}
}

// DecodeRecord reads one record of the ring. Errors wrap ErrRecord.
func DecodeRecord(raw []byte) (*attribution.Trace, error) {
	var r mapsRecord
	if len(raw) != binary.Size(&r) {
		return nil, fmt.Errorf("%w: %d bytes, want %d", ErrRecord, len(raw), binary.Size(&r))
	}
	if _, err := binary.Decode(raw, binary.NativeEndian, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	kind := attribution.TraceKind(r.Kind)
	switch {
	case kind != attribution.TraceTTFT && kind != attribution.TraceGap:
		return nil, fmt.Errorf("%w: kind %d", ErrRecord, r.Kind)
	case r.Port >= MaxPorts:
		return nil, fmt.Errorf("%w: port index %d", ErrRecord, r.Port)
	case r.T < r.Begin || r.StepCount < minimumStepCount:
		return nil, fmt.Errorf("%w: it ends at %d and begins at %d, with %d steps", ErrRecord, r.T, r.Begin, r.StepCount)
	}
	t := &attribution.Trace{
		Kind: kind, Cookie: r.Cookie, NetNS: r.Netns, Port: int(r.Port), Exchange: r.Exchange,
		Remote: remote(&r), Begin: time.Duration(r.Begin), End: time.Duration(r.T), Pos: uint64(r.Pos),
		Interval: r.Flags&flagInterval != 0,
	}
	t.Counted.Total = t.End - t.Begin
	for s, ns := range r.Stages {
		t.Counted.Stages[s] = time.Duration(ns)
	}
	n := min(r.StepCount, recorderSteps)
	t.Lost = int(r.StepCount - n)
	t.Steps = make([]attribution.Step, 0, n)
	for i := r.StepCount - n; i < r.StepCount; i++ {
		s := r.Steps[i%recorderSteps]
		t.Steps = append(t.Steps, attribution.Step{
			Time: time.Duration(s.T), Pos: uint64(s.Pos),
			Kind: attribution.StepKind(s.Kind), Class: attribution.WriteClass(s.Class),
		})
	}
	return t, nil
}

func remote(r *mapsRecord) netip.AddrPort {
	addr := netip.AddrFrom4([4]byte(r.Remote[:4]))
	if r.Family == familyIPv6 {
		addr = netip.AddrFrom16(r.Remote).Unmap()
	}
	return netip.AddrPortFrom(addr, r.RemotePort)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
