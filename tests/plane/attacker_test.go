// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// attacker speaks the wire protocol by hand, over one connection.
type attacker struct {
	t     testing.TB
	c     net.Conn
	id    wire.InstanceID
	epoch uint64
	seq   uint32
	read  sync.WaitGroup
}

// attack connects to a site, from an address of this host.
func attack(t testing.TB, to *site, host string) *attacker {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: patience}
	c, err := d.Dial("tcp", listensAt(t, to.PeerInfo()).String())
	if err != nil {
		t.Fatal(err)
	}
	a := &attacker{t: t, c: c, id: wire.NewInstanceID(), epoch: 1}
	a.read.Go(func() { _, _ = io.Copy(io.Discard, c) })
	t.Cleanup(a.close)
	return a
}

func (a *attacker) close() {
	a.c.Close()
	a.read.Wait()
}

// frame writes a whole frame; false: the connection was closed.
func (a *attacker) frame(kind wire.FrameType, header, payload []byte) bool {
	b := wire.AppendPreamble(nil, kind, len(header), len(payload))
	return a.raw(append(append(b, header...), payload...))
}

func (a *attacker) raw(b []byte) bool {
	_ = a.c.SetWriteDeadline(time.Now().Add(patience))
	_, err := a.c.Write(b)
	return err == nil
}

// message writes a message of a worker; zero: its own.
func (a *attacker) message(from wire.WorkerID, kind wire.Kind, handler string, body []byte) bool {
	if from == 0 {
		from = a.id.Worker()
	}
	header, err := wire.AppendMessageHeader(nil, kind, wire.NewResponseID(from, 0, 0), handler, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.frame(wire.Message, header, body)
}

// json is message with a body of JSON.
func (a *attacker) json(from wire.WorkerID, handler string, body any) bool {
	b, err := json.Marshal(body)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.message(from, wire.Unary, handler, b)
}

// batch writes a batch of a worker; zero: its own.
func (a *attacker) batch(from wire.WorkerID, list ...wire.Record) bool {
	h := wire.BatchHeader{Version: wire.V2, Epoch: a.epoch, Seq: a.seq}
	a.seq++
	return a.message(from, wire.FireAndForget, wire.BatchHandler, batchOf(h, list...))
}

// shut says whether the other side closes the connection.
func (a *attacker) shut() bool {
	done := make(chan struct{})
	go func() {
		a.read.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		a.c.Close()
		<-done
		return false
	}
}

func openOf(id wire.SlotID, anchor, session uint64) wire.Record {
	body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, anchor), session)
	return wire.Record{Type: wire.OpenSlot, Slot: id, Body: body}
}

func dataOf(id wire.SlotID, seq uint32, b []byte) wire.Record {
	return wire.Record{Type: wire.Data, Slot: id, FrameSeq: seq, Body: wire.AppendItemBytes(nil, b)}
}

func creditOf(id wire.SlotID, n uint32) wire.Record {
	return wire.Record{Type: wire.CreditUpdate, Slot: id, Body: binary.BigEndian.AppendUint32(nil, n)}
}

func closeOf(id wire.SlotID, r wire.CloseReason) wire.Record {
	return wire.Record{Type: wire.CloseSlot, Slot: id, Body: []byte{byte(r)}}
}

func lifecycleOf(id wire.SlotID, session uint64, l wire.Lifecycle) wire.Record {
	return wire.Record{Type: wire.LifecycleSlot, Slot: id, Body: append(binary.BigEndian.AppendUint64(nil, session), byte(l))}
}

// nowhere is an address at which nobody listens.
func nowhere() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:1") }
