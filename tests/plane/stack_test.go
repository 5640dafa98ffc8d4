// SPDX-License-Identifier: Apache-2.0

//go:build !race

package plane_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/mux"
)

func init() { roles["stacks"] = stacks }

// TestStacks: a goroutine for each stream, on either side, stays within the 2 KiB of stack
// that it begins with until its stream has ended. To copy a stack costs more than several
// records do, and at the end of many streams it is all copied at once. The race detector's
// frames are larger, so it has no such test.
func TestStacks(t *testing.T) {
	t.Setenv("GODEBUG", "adaptivestackstart=0") // begin with 2 KiB, whatever others need
	t.Setenv("GOGC", "off")                     // a collection shrinks what had grown
	var each uint64
	if err := hear(play(t, "stacks").out, &each); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of stack a goroutine", each)
	if each > 2600 { // some waited for a lock at their deepest; were it all of one side, 4 KiB
		t.Errorf("%d bytes of stack a goroutine, want the 2 KiB that it begins with", each)
	}
}

// stacks is a process of many streams, which says how large its goroutines' stacks are once
// all have ended.
func stacks() {
	const (
		streams  = 1000
		paced    = 20 // records before which a producer waits, so that the consumer does too
		together = 100
	)
	x, err := newSite(plane.Options{Mux: mux.Options{Window: 16}})
	must(err)
	y, err := newSite(plane.Options{})
	must(err)
	must(errors.Join(x.Register(y.PeerInfo()), y.Register(x.PeerInfo())))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 2*streams)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := func(f func() error) {
		go func() {
			ended <- f()
			<-ctx.Done() // so that its stack is counted
		}()
	}
	for i := range streams {
		a, err := x.NewAnchor(plane.AnchorOptions{})
		must(err)
		at := y // some streams stay on one node
		if i%4 == 0 {
			at = x
		}
		s, err := at.Attach(ctx, a.Handle())
		must(err)
		reads := ctx
		if i%2 == 0 { // half of the consumers have a context of their own
			var stop context.CancelFunc
			reads, stop = context.WithCancel(ctx)
			defer stop()
		}
		begin(func() error {
			for {
				if _, err := a.Recv(reads); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
		begin(func() error {
			record := make([]byte, 160)
			for i := range paced + together {
				if i < paced {
					time.Sleep(2 * time.Millisecond)
				}
				if err := s.Send(ctx, record); err != nil {
					return err
				}
			}
			return s.Finalize()
		})
	}
	for range 2 * streams {
		must(<-ended)
	}
	runtime.ReadMemStats(&after)
	say(os.Stdout, (after.StackInuse-before.StackInuse)/(2*streams))
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // to be killed
}
