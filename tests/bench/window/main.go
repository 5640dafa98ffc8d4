// SPDX-License-Identifier: Apache-2.0

// Window measures what the credit window and the flush policy of the response plane do
// (make bench-window): on a consumer that is the bottleneck, how long the first record of
// a new stream waits; and at a steady pace, what each way to flush costs and delays.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/tests/results"
)

func main() {
	reps := flag.Int("reps", 5, "repetitions of each arm, interleaved")
	each := flag.Duration("for", 2*time.Second, "the length of one repetition")
	short := flag.Bool("short", false, "one short repetition, to see that it runs")
	flag.Parse()
	if *short {
		*reps, *each = 1, 2*time.Second // at a window of 256 a first record waits for 0.7 s
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	out := results.New("bench-window")
	if err := windows(ctx, out, *reps, *each); err != nil {
		out.Fail(err.Error())
	}
	if err := flushes(ctx, out, *reps, *each); err != nil {
		out.Fail(err.Error())
	}
	stop()
	os.Exit(out.Finish(os.Stdout, "build/results"))
}

// pair starts a producer and a consumer that know each other.
func pair(producer, consumer mux.Options) (*plane.Node, *plane.Node, error) {
	start := func(o mux.Options) (*plane.Node, error) {
		return plane.New(plane.Options{Listen: []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}, Mux: o})
	}
	a, err := start(producer)
	if err != nil {
		return nil, nil, err
	}
	b, err := start(consumer)
	if err != nil {
		a.Close()
		return nil, nil, err
	}
	if err := a.Register(b.PeerInfo()); err != nil {
		return nil, nil, err
	}
	return a, b, nil
}

// begin opens a stream by ticket.
func begin(from, to *plane.Node, value any) (*plane.Anchor, *plane.Sender, error) {
	a, err := to.NewAnchor(plane.AnchorOptions{Value: value})
	if err != nil {
		return nil, nil, err
	}
	t, err := a.Ticket(0)
	if err != nil {
		return nil, nil, err
	}
	s, err := from.Open(a.Handle(), t)
	return a, s, err
}

// quantile of durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median and range of an arm's repetitions.
func spread(list []float64) (mid float64, note string) {
	s := slices.Sorted(slices.Values(list))
	return s[len(s)/2], fmt.Sprintf("[%.3g, %.3g]", s[0], s[len(s)-1])
}
