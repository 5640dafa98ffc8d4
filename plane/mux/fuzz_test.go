// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"testing"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// FuzzBatch gives a mux that has slots of both directions any bytes, as two batches.
func FuzzBatch(f *testing.F) {
	a, b := slot(0, 0), slot(1, 0)
	for _, seed := range [][]byte{
		batched(1, 1, item(a, 1, "x"), item(b, 2, "y"), item(b, 1, "z")),
		batched(1, 2, frame(a, 1, wire.FrameFinalized), closes(a, 2, wire.TerminalSent), frame(a, 3, wire.FrameDropped)),
		batched(1, 1, frame(a, 1, nil), closes(a, 2, wire.TerminalSent)),
		batched(2, 0, opens(a, 3), opens(b, 3), item(b, 1, "y")),
		batched(1, 1, closes(a, 0, wire.UnknownSlot), lifecycles(b, 2, wire.Cancel), credits(b, 9), opens(slot(1<<24-1, 255), 4)),
		batched(0, 1, item(a, 1, "x")),
		batched(1, 9, item(a, 4, "x"), item(a, 3, "x"), item(a, 2, "x"), item(a, 5, "x"), wire.Record{Type: wire.SlotHeartbeat, Slot: a, FrameSeq: 1}),
	} {
		f.Add(seed, seed)
		f.Add(seed, batched(1, 3, item(a, 1, "x"))[:40])
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		m, l := solo(t, Options{Window: 4, SlotBytes: 64, PeerBytes: 100})
		boxes := bound(m, 4)
		ends := map[*Owner]int{}
		for i := range 2 {
			var o *Owner
			o, err := m.peers[producer].begin(Terms{Session: uint64(i + 1), Credit: 1}, Hooks{End: func(error) { ends[o]++ }, Stop: func() {}})
			must(t, err)
			must(t, o.Item([]byte("x")))
		}
		m.Batch(producer, batched(1, 0, opens(a, 1), opens(b, 2), item(b, 1, "w")))
		for _, batch := range [][]byte{one, two, one} {
			m.Batch(producer, batch)
			m.sound(t)
			l.take(t)
			m.sound(t)
		}
		m.peers[producer].suspect()
		m.steps(t, 2)
		m.sound(t)
		m.Close()
		for o, n := range ends {
			if n != 1 {
				t.Errorf("owner %d ends %d times", o.id, n)
			}
		}
		for i, b := range boxes {
			terminals := 0
			var f Frames
			for b.Take(&f) {
				for f.N > 0 {
					if frame, _, _ := f.Next(); wire.IsTerminal(frame) {
						terminals++
					} else if terminals > 0 {
						t.Errorf("a record comes after the end of stream %d", i+1)
					}
				}
			}
			if terminals > 1 || i < 2 && terminals == 0 {
				t.Errorf("stream %d ends %d times", i+1, terminals)
			}
		}
		if n := m.opts.Metrics.LiveSlots.Load() + m.opts.Metrics.Held.Load(); n != 0 {
			t.Errorf("%d slots and held records are left", n)
		}
	})
}
