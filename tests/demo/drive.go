// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/velo-agent/velo-agent/tests/peers"
)

const (
	stalledClients = 2                      // of the own server's
	stallTime      = 300 * time.Millisecond // how long they read nothing, once an answer
	stallRead      = 30                     // the read after which they stall, a few tokens into the answer
	stallBuffer    = 8 << 10                // their receive buffer, bytes
	warmUp         = time.Second            // of load before diagnose begins
	grace          = time.Minute            // for diagnose beyond its own duration
)

// load is one server under load and what its clients saw.
type load struct {
	name    string
	port    int
	timings []peers.Timing
	err     error
}

// drive starts the servers and the load, runs diagnose, stops everything, and
// returns diagnose's exit code.
func drive(ctx context.Context, s settings, out, log io.Writer) (code int, err error) {
	say := func(format string, args ...any) { fmt.Fprintf(log, "demo: "+format+"\n", args...) }

	var engine *peers.Engine
	if s.noEngine {
		say("no real engine, as asked")
	} else {
		engine, err = peers.StartLlama(ctx, peers.Config{Scratch: s.scratch, Log: log, Slots: 2 * s.clients})
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			say("no real engine, going on with the own server alone: %v", err)
		default:
			defer func() { err = errors.Join(err, engine.Stop()) }()
		}
	}
	plan := schedule{epoch: peers.Now() + int64(warmUp), length: max(s.duration/time.Duration(numPhases), time.Millisecond)}
	own, err := startOwn(ctx, plan)
	if err != nil {
		return 0, err
	}
	defer own.stop()
	say("own server on port %d (pid %d); it takes turns every %v: slow accept 40 ms, think 80 ms, late read 30 ms, "+
		"%v %v, calm", own.port, own.pid, plan.length, stalledRead, stallTime)

	var stalls atomic.Int64
	loads := []*load{{name: "own server", port: own.port}}
	loadCtx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stopLoad := func() { cancel(); group.Wait() }
	defer stopLoad()
	group.Go(func() { loads[0].run(loadCtx, ownShapes(s.clients, plan, &stalls)) })
	if engine != nil {
		l := &load{name: "llama.cpp", port: engine.Port}
		loads = append(loads, l)
		group.Go(func() { l.run(loadCtx, engineShapes(s.clients)) })
	}
	say("%d streams at once; diagnose begins in %v and takes %v", len(loads)*s.clients, warmUp, s.duration)

	if err := sleep(ctx, warmUp); err != nil {
		return 0, err
	}
	code, err = diagnose(ctx, s, loads, out, log)
	stopLoad()
	for _, line := range own.stop() {
		say("the own server injected %s", line)
	}
	say("its clients injected %v: %d times, %v each", stalledRead, stalls.Load(), stallTime)
	for _, l := range loads {
		l.report(say)
	}
	return code, err
}

// ownShapes are the clients of the own server: most behave, and two stall while
// it is their turn. A connection serves two exchanges.
func ownShapes(clients int, plan schedule, stalls *atomic.Int64) []peers.Shape {
	shape := peers.Shape{
		Clients: max(clients-stalledClients, 1), Reuse: 2,
		Pause: 100 * time.Millisecond, Stagger: 30 * time.Millisecond,
		Options: peers.Options{Tokens: 16},
	}
	stalling := shape
	stalling.Clients, stalling.ReceiveBuffer = stalledClients, stallBuffer
	stalling.Options.Receive = func(read int) {
		if read == stallRead && plan.now() == stalledRead {
			time.Sleep(stallTime)
			stalls.Add(1)
		}
	}
	return []peers.Shape{shape, stalling}
}

// engineShapes are the clients of llama.cpp's server, with pauses that leave a
// core of two idle.
func engineShapes(clients int) []peers.Shape {
	return []peers.Shape{{
		Clients: clients, Pause: 250 * time.Millisecond, Stagger: 30 * time.Millisecond,
		Options: peers.Options{Tokens: 24},
	}}
}

func (l *load) url() string { return "http://127.0.0.1:" + strconv.Itoa(l.port) }

func (l *load) run(ctx context.Context, shapes []peers.Shape) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, shape := range shapes {
		group.Go(func() {
			timings, err := shape.Run(ctx, l.url(), peers.TinyName)
			mu.Lock()
			defer mu.Unlock()
			l.timings = append(l.timings, timings...)
			l.err = errors.Join(l.err, err)
		})
	}
	group.Wait()
}

// report says what the clients saw over the whole load, which is a little longer
// than diagnose's window.
func (l *load) report(say func(string, ...any)) {
	sum := peers.Summarize(l.timings)
	say("clients of %s (port %d) saw %d streams: TTFT p50 %s p99 %s, gaps p50 %s p99 %s",
		l.name, l.port, sum.TTFT.Count, ms(sum.TTFT.P50), ms(sum.TTFT.P99), ms(sum.ReadGaps.P50), ms(sum.ReadGaps.P99))
	if l.err != nil {
		say("some clients of %s gave up: %v", l.name, l.err)
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1e3) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
