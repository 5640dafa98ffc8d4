// SPDX-License-Identifier: Apache-2.0

// Soak runs the real daemon for a long time while two engines are killed and started
// again under traffic, and looks for what grows (make soak).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

// plan is how long what takes. The means that are compared are those of the first and
// the last span, the first after a warm-up.
type plan struct{ length, warmUp, span, every time.Duration }

func main() {
	if len(os.Args) > 1 && os.Args[1] == enginePart {
		live.Serve(answer)
		return
	}
	length := flag.Duration("for", 30*time.Minute, "how long, 7 minutes or more")
	short := flag.Bool("short", false, "90 s, and the means of 20 s")
	flag.Parse()
	p := plan{length: *length, warmUp: time.Minute, span: 5 * time.Minute, every: 5 * time.Second}
	if *short {
		p = plan{length: 90 * time.Second, warmUp: 30 * time.Second, span: 20 * time.Second, every: time.Second}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	out := results.New("soak")
	if p.length < p.warmUp+p.span {
		out.Fail(fmt.Sprintf("-for %v: nothing is left after a warm-up of %v and a span of %v", p.length, p.warmUp, p.span))
	} else if err := run(ctx, out, p); err != nil {
		out.Fail(err.Error())
	}
	stop()
	os.Exit(out.Finish(os.Stdout, "build/results"))
}

func run(ctx context.Context, out *results.Run, p plan) (err error) {
	engines := []*engine{newEngine(0), newEngine(1)}
	d, err := live.Start(ctx, fmt.Sprintf("  engines: false\n  ports: [%d, %d]\n", engines[0].port, engines[1].port))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	living, stop := context.WithTimeout(ctx, p.length)
	defer stop()
	c := &count{daemon: d, last: map[string]float64{}}
	var wg sync.WaitGroup
	fail := make(chan error, len(engines)+1)
	for _, e := range engines {
		wg.Go(func() {
			if err := e.live(living, c); err != nil {
				fail <- err
				stop()
			}
		})
	}
	s := &series{daemon: d, plan: p}
	wg.Go(func() {
		if err := s.sample(living); err != nil {
			fail <- err
			stop()
		}
	})
	wg.Wait()
	select {
	case err := <-fail:
		return fmt.Errorf("%w; the daemon said: %s", err, d.Log())
	default:
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := c.finish(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	c.judge(out, engines)
	s.judge(out)
	return nil
}
