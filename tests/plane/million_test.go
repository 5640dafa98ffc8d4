// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestMillionStreams begins and ends them: what they leave behind does not grow with them.
func TestMillionStreams(t *testing.T) {
	watch(t)
	const records, atOnce = 4, 1024
	streams := pick(50_000, 1_000_000)
	producer, consumer := pair(t, plane.Options{}, plane.Options{})
	places := make(chan struct{}, atOnce)
	var wrong complaints
	p := plane.NewPoller(func(a *plane.Anchor, e plane.Event) {
		k := a.Value().(*taker)
		switch {
		case e.Kind == wire.Item && len(e.Data) == 64 && k.next < records && string(e.Data) == string(record(nil, k.number, k.next, 64)):
			k.next++
		case e.Kind == wire.Finalized && k.next == records:
			<-places
		default:
			wrong.add("stream %d: %v after %d records", k.number, e, k.next)
			<-places
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	defer wg.Wait()
	defer stop()
	var b []byte
	run := func(n int) {
		for i := range uint64(n) {
			places <- struct{}{}
			s, a := open(t, producer, consumer, plane.AnchorOptions{Value: &taker{number: i}})
			p.Add(a)
			for k := range uint64(records) {
				b = record(b, i, k, 64)
				if err := s.Send(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Finalize(); err != nil {
				t.Fatal(err)
			}
		}
		for range atOnce { // all have ended
			places <- struct{}{}
		}
		for range atOnce {
			<-places
		}
		eventually(t, func() string {
			if producer.Live()+consumer.Live() > 0 {
				return "slots are left"
			}
			return ""
		})
	}
	run(max(streams/10, 50_000))
	bytes, goroutines, files := heap(), runtime.NumGoroutine(), descriptors(t)
	run(streams)
	wrong.tell(t)
	eventually(t, func() string {
		if g, f := runtime.NumGoroutine(), descriptors(t); g > goroutines || f > files {
			return "there are more goroutines or descriptors than before"
		}
		return ""
	})
	after := 0
	eventually(t, func() string { // what is kept to be used again goes by and by
		if after = heap(); after > bytes+bytes/10 {
			return fmt.Sprintf("the heap has %d bytes after %d streams, %d before", after, streams, bytes)
		}
		return ""
	})
	t.Logf("after %d streams the heap has %d KiB, %d KiB before; %d goroutines", streams, after>>10, bytes>>10, goroutines)
	quiet(t, producer, consumer)
}
