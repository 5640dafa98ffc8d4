// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"errors"
	"fmt"
	"testing"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// BenchmarkStreams moves records of 160 bytes from one mux to another, without sockets:
// one producer for all streams, one consumer that polls. An operation is a record.
func BenchmarkStreams(b *testing.B) {
	for _, streams := range []int{1, 256, 2048} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			_, from, to := pair2(b, Options{})
			n, done := 0, make(chan struct{})
			poller := NewPoller(each(func(_ *Inbox, _ uint32, frame []byte) {
				kind, body, _ := wire.ParseStreamFrame(frame)
				if item, err := wire.ItemBytes(body); kind != wire.Item || err != nil || len(item) != 160 {
					b.Error("wrong")
				}
				if n++; n == b.N {
					close(done)
				}
			}))
			owners := make([]*Owner, streams)
			for i := range owners {
				o, r, _ := open(b, from, to, uint64(i+1), Hooks{})
				r.box.Serve(poller, true)
				owners[i] = o
			}
			ctx := serve(b, poller)
			record := make([]byte, 160)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				o := owners[i%streams]
				for {
					err := o.Item(record)
					if err == nil {
						break
					}
					if !errors.Is(err, ErrWouldBlock) {
						b.Fatal(err)
					}
					if err := o.Wait(ctx); err != nil {
						b.Fatal(err)
					}
				}
			}
			<-done
		})
	}
}
