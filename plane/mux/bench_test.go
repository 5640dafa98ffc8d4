// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
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
			var poller Poller
			owners := make([]*Owner, streams)
			for i := range owners {
				o, r, _ := open(b, from, to, uint64(i+1), Hooks{})
				r.box.Poll(&poller)
				owners[i] = o
			}
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			done := make(chan struct{})
			go func() {
				defer close(done)
				var ready []*Inbox
				var f Frames
				for n := 0; n < b.N; {
					var err error
					if ready, err = poller.Next(ctx, ready[:0]); err != nil {
						return
					}
					for _, box := range ready {
						f = Frames{buf: f.buf}
						if !box.Take(&f) {
							continue
						}
						records, bytes := f.N, 0
						var tag uint32
						for f.N > 0 {
							var frame []byte
							frame, tag, _ = f.Next()
							kind, body, _ := wire.ParseStreamFrame(frame)
							if item, err := wire.ItemBytes(body); kind != wire.Item || err != nil || len(item) != 160 {
								b.Error("wrong")
							}
							bytes += len(frame)
						}
						box.Drained(&f, tag, records, bytes)
						n += records
					}
				}
			}()
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
