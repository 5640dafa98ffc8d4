// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// BenchmarkStreams moves records of 160 bytes over loopback TCP, both ends in this
// process. An operation is a record.
func BenchmarkStreams(b *testing.B) {
	const streams = 2048
	for _, push := range []bool{true, false} {
		for _, perStream := range []bool{false, true} {
			b.Run(fmt.Sprintf("push=%v/goroutine a stream=%v", push, perStream), func(b *testing.B) {
				from, to := peers(b, Options{}, Options{})
				each := max(b.N/streams, 1)
				ctx, stop := context.WithCancel(b.Context())
				var ended sync.WaitGroup
				ended.Add(streams)
				poller := NewPoller(func(_ *Anchor, e Event) {
					if e.Kind == wire.Item {
						if len(e.Data) != 160 {
							b.Error("wrong")
						}
						return
					}
					ended.Done()
				})
				senders := make([]*Sender, streams)
				var feeder Feeder
				for i := range senders {
					a := anchor(b, to, AnchorOptions{})
					if push {
						poller.Add(a)
					} else {
						go func() {
							defer ended.Done()
							for {
								if _, err := a.Recv(ctx); err != nil {
									return
								}
							}
						}()
					}
					senders[i] = byTicket(b, from, a)
					if !perStream {
						feeder.Add(senders[i])
					}
				}
				var running sync.WaitGroup
				running.Go(func() { _ = poller.Run(ctx) })
				b.ReportAllocs()
				b.ResetTimer()
				if perStream {
					for _, s := range senders {
						running.Go(func() {
							record := make([]byte, 160)
							for range each {
								if err := s.Send(ctx, record); err != nil {
									b.Error(err)
								}
							}
							s.Finalize()
						})
					}
				} else {
					feed(b, ctx, senders, &feeder, each)
				}
				ended.Wait()
				b.StopTimer()
				stop()
				running.Wait()
			})
		}
	}
}

// feed sends records on all senders from one goroutine, round robin.
func feed(b *testing.B, ctx context.Context, senders []*Sender, feeder *Feeder, each int) {
	record := make([]byte, 160)
	left := make(map[*Sender]int, len(senders))
	for _, s := range senders {
		left[s] = each
	}
	ready := append([]*Sender{}, senders...)
	for len(left) > 0 {
		next := ready[:0]
		for _, s := range ready {
			n := left[s]
			if n == 0 {
				continue
			}
			err := s.TrySend(record)
			switch {
			case errors.Is(err, ErrWouldBlock): // the feeder tells
			case err != nil:
				b.Error(err)
				return
			case n == 1:
				delete(left, s)
				s.Finalize()
			default:
				left[s] = n - 1
				next = append(next, s)
			}
		}
		ready = feeder.Ready(next)
		if len(ready) == 0 && len(left) > 0 {
			var err error
			if ready, err = feeder.Next(ctx, ready); err != nil {
				b.Error(err)
				return
			}
		}
	}
}

// BenchmarkLifeCycle is a whole stream of one record on one node.
func BenchmarkLifeCycle(b *testing.B) {
	n := node(b, Options{})
	ctx := b.Context()
	record := make([]byte, 160)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a, err := n.NewAnchor(AnchorOptions{})
			if err != nil {
				b.Fatal(err)
			}
			s, err := n.Attach(ctx, a.Handle())
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Send(ctx, record); err != nil {
				b.Fatal(err)
			}
			if err := s.Finalize(); err != nil {
				b.Fatal(err)
			}
			if _, err := a.Recv(ctx); err != nil {
				b.Fatal(err)
			}
			if _, err := a.Recv(ctx); err != io.EOF {
				b.Fatal(err)
			}
		}
	})
}
