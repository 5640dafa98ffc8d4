// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/tests/victims"
)

const (
	serverCPU, clientCPU = 0, 1
	settle               = 10 * time.Second // until the log and the traces are whole
)

// exchange names one exchange as the victim's log and the traces do.
type exchange struct{ port, ordinal int }

// collector keeps the traces of a session.
type collector struct {
	mu   sync.Mutex
	ttft map[exchange]*attribution.Trace
	gaps map[exchange][]*attribution.Trace
}

func (c *collector) add(t *attribution.Trace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := exchange{int(t.Remote.Port()), int(t.Exchange)}
	if t.Kind == attribution.TraceTTFT {
		c.ttft[key] = t
	} else {
		c.gaps[key] = append(c.gaps[key], t)
	}
}

// run drives one case and returns its pairs, and the rung that the accept was seen by.
func (c *testCase) run(ctx context.Context, samples int) ([]pair, string, error) {
	cfg := c.victim
	if c.victim.CPU != victims.NoPin {
		cfg.CPU = serverCPU
	}
	v, err := victims.Start(ctx, cfg)
	if err != nil {
		return nil, "", fmt.Errorf("starting the victim: %w", err)
	}
	defer v.Stop()
	cc := c.client
	cc.Addr, cc.CPU = v.Addr(), clientCPU
	client := victims.NewClient(cc)
	defer client.Close()
	exchanges := 0
	do := func(r victims.Request) (victims.Result, error) {
		exchanges++
		return client.Do(r)
	}
	shift := 0 // exchanges of the first connection that the agent did not see
	if c.old {
		if _, err := do(victims.Request{}); err != nil {
			return nil, "", err
		}
		shift = 1
	}
	col := &collector{ttft: map[exchange]*attribution.Trace{}, gaps: map[exchange][]*attribution.Trace{}}
	o := agent.Options{Watch: agent.Watch{Ports: []uint16{uint16(v.Port)}}, ExactAccept: true, TraceAll: true, OnTrace: col.add}
	if c.rung != "" {
		o.Only = map[string]string{"accepted": c.rung}
	}
	s, err := agent.Open(ctx, o)
	if err != nil {
		return nil, "", fmt.Errorf("opening the session: %w", err)
	}
	defer s.Close()
	if err := s.Missing(); err != nil {
		return nil, "", err
	}
	if !c.fresh && !c.old {
		if _, err := do(victims.Request{}); err != nil {
			return nil, "", err
		}
	}
	keys, err := c.drive(ctx, v, do, samples)
	if err != nil {
		return nil, "", err
	}
	entries, err := v.WaitLog(ctx, exchanges)
	if err != nil {
		return nil, "", fmt.Errorf("waiting for the victim's log: %w", err)
	}
	pairs, err := c.join(keys, entries, col, shift)
	return pairs, c.how(s), err
}

// how names the rung that mattered.
func (c *testCase) how(s *agent.Session) string {
	if c.stages[0] == attribution.AcceptWait {
		return rungOf(s, "accepted")
	}
	return "arrived " + rungOf(s, "arrived")
}

// drive makes the pairs and returns their names, disturbed first.
func (c *testCase) drive(ctx context.Context, v *victims.Victim, do func(victims.Request) (victims.Result, error), samples int) ([][2]exchange, error) {
	var hog *victims.Hog
	if c.hog {
		var err error
		if hog, err = victims.StartHog(ctx, serverCPU, 50, 10*time.Millisecond); err != nil {
			return nil, err
		}
		defer hog.Stop()
	}
	rng := rand.New(rand.NewPCG(1, uint64(samples)))
	keys := make([][2]exchange, 0, samples)
	for range samples {
		var key [2]exchange
		order := []bool{true, false}
		if rng.IntN(2) == 0 {
			order = []bool{false, true}
		}
		for _, on := range order {
			k, err := c.once(v, hog, do, on)
			if err != nil {
				return nil, err
			}
			if on {
				key[0] = k
			} else {
				key[1] = k
			}
		}
		keys = append(keys, key)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// Pauses of odd length keep the pairs from marching in step with a hog.
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
	}
	return keys, nil
}

func (c *testCase) once(v *victims.Victim, hog *victims.Hog, do func(victims.Request) (victims.Result, error), on bool) (exchange, error) {
	for i := range c.warm {
		if _, err := do(victims.Request{Fresh: i == 0}); err != nil {
			return exchange{}, err
		}
	}
	if c.disturb != nil {
		if err := c.disturb(v, on); err != nil {
			return exchange{}, err
		}
		defer c.disturb(v, false)
	}
	if hog != nil {
		set := hog.Pause
		if on {
			set = hog.Resume
		}
		if err := set(); err != nil {
			return exchange{}, err
		}
		time.Sleep(2 * time.Millisecond) // the server is back in its wait
	}
	r, err := do(c.request(on))
	return exchange{r.LocalPort, r.Ordinal}, err
}

var errLost = errors.New("the agent did not show an exchange that took place")

// join brings together what the victim measured and what the agent saw.
func (c *testCase) join(keys [][2]exchange, entries []victims.Entry, col *collector, shift int) ([]pair, error) {
	log := map[exchange]victims.Entry{}
	for _, e := range entries {
		log[exchange{e.RemotePort, e.Ordinal}] = e
	}
	pairs := make([]pair, 0, len(keys))
	for _, k := range keys {
		var p pair
		for i, s := range []*side{&p.on, &p.off} {
			e, ok := log[k[i]]
			if !ok {
				return nil, fmt.Errorf("the victim's log lacks exchange %v", k[i])
			}
			if err := c.fill(s, e, exchange{k[i].port, k[i].ordinal - shift}, col); err != nil {
				return nil, fmt.Errorf("exchange %v: %w", k[i], err)
			}
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

func (c *testCase) fill(s *side, e victims.Entry, key exchange, col *collector) error {
	if c.gaps {
		return c.fillGaps(s, e, key, col)
	}
	t := col.wait(func() (*attribution.Trace, bool) { t, ok := col.ttft[key]; return t, ok })
	if t == nil {
		return errLost
	}
	s.stages = t.Counted
	if c.hog { // it takes the CPU while the server answers, too
		s.elsewhere = time.Duration(e.ServedRunDelay)
	}
	for _, st := range c.stages {
		s.injected += injected(e, st)
	}
	return nil
}

// fillGaps sums the gaps of an exchange. What was injected in engine is the time
// that the victim spent between its content writes.
func (c *testCase) fillGaps(s *side, e victims.Entry, key exchange, col *collector) error {
	var last int64
	want := -1
	for _, w := range e.Writes {
		if w.What != "content" {
			continue
		}
		want++
		if last > 0 && c.stages[0] == attribution.Engine {
			s.injected += time.Duration(w.Before - last)
		}
		last = w.After
	}
	if c.stages[0] == attribution.SendQueue {
		s.injected = time.Duration(e.Injected.SendQueue)
	}
	var gaps []*attribution.Trace
	col.wait(func() (*attribution.Trace, bool) { gaps = col.gaps[key]; return nil, len(gaps) >= want })
	if len(gaps) < want {
		return errLost
	}
	for _, g := range gaps {
		s.stages.Total += g.Counted.Total
		for st, d := range g.Counted.Stages {
			s.stages.Stages[st] += d
		}
	}
	return nil
}

// wait asks until f finds what it looks for, or the time is up.
func (c *collector) wait(f func() (*attribution.Trace, bool)) *attribution.Trace {
	for end := time.Now().Add(settle); ; time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		t, ok := f()
		c.mu.Unlock()
		if ok || time.Now().After(end) {
			return t
		}
	}
}

func injected(e victims.Entry, s attribution.Stage) time.Duration {
	switch s {
	case attribution.AcceptWait:
		return time.Duration(e.Injected.AcceptWait)
	case attribution.WakeToRun:
		return time.Duration(e.Injected.WakeToRun)
	case attribution.RuntimeHandoff:
		return time.Duration(e.Injected.Handoff)
	case attribution.Reader:
		return time.Duration(e.Injected.Reader)
	case attribution.Engine:
		return time.Duration(e.Injected.Engine)
	case attribution.SendQueue:
		return time.Duration(e.Injected.SendQueue)
	}
	return 0
}

func rungOf(s *agent.Session, signal string) string {
	m, err := s.Measure()
	if err != nil {
		return ""
	}
	for _, c := range m.Coverage {
		if c.Signal == signal {
			return c.Rung
		}
	}
	return ""
}
