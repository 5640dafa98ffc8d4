// SPDX-License-Identifier: Apache-2.0

// Package sockqueue watches the queues of a socket: when bytes arrive, are read,
// are handed in and leave.
package sockqueue

import (
	"errors"
	"fmt"
	"io"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// Arrived is the signal that bytes became readable.
func Arrived(m *bpf.Maps) ladder.Signal {
	return ladder.Signal{Name: "arrived", Rungs: []ladder.Rung{
		m.Rung("tp_btf/sk_data_ready", loadSockqueue, "arrived"),
		m.Rung("fentry/sock_def_readable", loadSockqueue, "arrived_fentry"),
		m.Rung("tp_btf/tcp_probe", loadSockqueue, "arrived_probe"),
	}}
}

// Read is the signal that the application took bytes. tcp_rcv_space_adjust is the
// better one: it runs with the socket locked, sees splice, and neither EAGAIN nor
// Unix sockets cost anything.
func Read(m *bpf.Maps) ladder.Signal {
	return ladder.Signal{Name: "read", Rungs: []ladder.Rung{
		m.Rung("tp_btf/tcp_rcv_space_adjust", loadSockqueue, "read_done"),
		m.Rung("tp_btf/sock_recv_length", loadSockqueue, "read_return"),
	}}
}

// SendStart is the signal that the application hands bytes in; it also looks at
// the first bytes of first writes, unless content is switched off.
func SendStart(m *bpf.Maps) ladder.Signal {
	return ladder.Signal{Name: "send_start", Rungs: []ladder.Rung{
		m.Flagged(bpf.FlagSendStart, m.Rung("tp_btf/tcp_sendmsg_locked", loadSockqueue, "send_begins")),
		m.Flagged(bpf.FlagSendStart, m.Rung("fentry/tcp_sendmsg", loadSockqueue, "send_begins_fentry")),
	}}
}

// Left is the signal that bytes were given to the network.
func Left(m *bpf.Maps) ladder.Signal {
	return ladder.Signal{Name: "left", Rungs: []ladder.Rung{
		m.Rung("tp_btf/sock_send_length", loadSockqueue, "sent"),
		m.Rung("fexit/tcp_sendmsg", loadSockqueue, "sent_fexit"),
	}}
}

// LeftLater is the signal that bytes left after their send had returned. It is
// attached only while some send leaves data behind.
func LeftLater(m *bpf.Maps) ladder.Signal {
	return ladder.Signal{Name: "left_later", Rungs: []ladder.Rung{
		m.Rung("tp_btf/net_dev_queue", loadSockqueue, "queued"),
		m.Rung("tp_btf/tcp_probe", loadSockqueue, "acknowledged"),
	}}
}

// Socket is what the kernel's list says of one socket of a watched port.
type Socket struct {
	Cookie        uint64
	State         uint32
	Arrived, Read uint64 // positions
	Written, Left uint64
	Marked        bool // by this run
	Clocks
}

// Clocks is the kernel's time in both its forms.
type Clocks struct {
	Jiffies uint64
	Ktime   uint64 // ns, CLOCK_MONOTONIC
}

// Established is a TCP state that Mark reports.
const Established = 1

// Marker marks the sockets that are older than the agent.
type Marker struct {
	maps         *bpf.Maps
	mark, survey *bpf.Iterator
}

// NewMarker loads the iterators.
func NewMarker(m *bpf.Maps) (*Marker, error) {
	mark, err := m.NewIterator(loadSockqueue, "mark")
	if err != nil {
		return nil, fmt.Errorf("loading the iterator of TCP sockets: %w", err)
	}
	survey, err := m.NewConnIterator(loadSockqueue, "survey")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("loading the iterator of marked sockets: %w", err), mark.Close())
	}
	return &Marker{m, mark, survey}, nil
}

// Close unloads the iterators.
func (k *Marker) Close() error { return errors.Join(k.mark.Close(), k.survey.Close()) }

// Mark walks the TCP sockets of the calling thread's network namespace, marks
// those of watched ports, and hands each to f.
func (k *Marker) Mark(f func(Socket)) error { return k.mark.Run(each(f)) }

// Survey walks the marked sockets of all network namespaces, which takes no right to
// enter them, and returns what they add up to, by port index, and when that was.
func (k *Marker) Survey() (open map[int]bpf.OpenSockets, at Clocks, err error) {
	if err := k.maps.ForgetOpen(); err != nil {
		return nil, at, err
	}
	if err := k.survey.Run(each(func(end Socket) { at = end.Clocks })); err != nil {
		return nil, at, err
	}
	open, err = k.maps.Open()
	return open, at, err
}

func each(f func(Socket)) func(io.Reader) error {
	return func(r io.Reader) error {
		return bpf.ReadEach(r, func(l *sockqueueSockLine) {
			f(Socket{
				Cookie: l.Cookie, State: l.State, Arrived: l.Arrived, Read: l.Read, Written: l.Written, Left: l.Left,
				Marked: l.Marked != 0, Clocks: Clocks{l.Jiffies, l.Ktime},
			})
		})
	}
}
