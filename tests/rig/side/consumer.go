// SPDX-License-Identifier: Apache-2.0

package side

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/velo-agent/velo-agent/tests/rig/carrier"
	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// tick is what a walk sleeps between its rounds, here and in the Rust program.
const tick = time.Millisecond

type consumer struct {
	spec    *carrier.Spec
	sink    *load.Sink
	carried carrier.Consumer
	ended   chan struct{} // for each stream, where they are asked for as others end
}

func newConsumer(spec *carrier.Spec, c carrier.Carrier) (_ *consumer, err error) {
	s := &consumer{spec: spec, sink: load.NewSink(spec.Streams, spec.Records, spec.Size, spec.Paced)}
	if spec.InFlight > 0 {
		s.ended = make(chan struct{}, spec.InFlight)
		s.sink.OnEnd = func() { s.ended <- struct{}{} }
	}
	s.carried, err = c.Consumer(spec, s.sink)
	return s, err
}

func (c *consumer) address() any { return c.carried.Address() }

func (c *consumer) carriedBy() any { return c.carried }

func (c *consumer) connect(producer json.RawMessage) error { return c.carried.Connect(producer) }

func (c *consumer) do(cmd string, a *Answer) (err error) {
	switch cmd {
	case "mark":
	case "rest":
		debug.FreeOSMemory()
	case "cycles":
		a.BegunNS = load.Now()
		if err := c.cycles(); err != nil {
			return err
		}
		if a.EndedNS, err = c.sink.Done(); err != nil {
			return err
		}
		q := c.sink.Cycle.Quantiles()
		a.Latency = &q
	case "setup":
		if err := c.ask(); err != nil {
			return err
		}
		if err := c.sink.Ready(); err != nil {
			return err
		}
		q := c.sink.Setup.Quantiles()
		a.Setup = &q
	case "wait":
		if a.EndedNS, err = c.sink.Done(); err != nil {
			return err
		}
		if c.spec.Paced {
			q := c.sink.Latency.Quantiles()
			a.Latency = &q
		}
	default:
		return fmt.Errorf("no command of a consumer: %q", cmd)
	}
	return nil
}

// ask asks for all streams at an even pace.
func (c *consumer) ask() error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for begun, asked := time.Now(), 0; asked < c.spec.Streams; {
		<-t.C
		due := min(c.spec.Streams, int(time.Since(begun).Seconds()*c.spec.SetupRate))
		if err := c.askFor(asked, due); err != nil {
			return err
		}
		asked = max(asked, due)
	}
	return nil
}

func (c *consumer) askFor(from, to int) error {
	for ; from < to; from++ {
		c.sink.Stream(from).Request()
		if err := c.carried.Request(from); err != nil {
			return err
		}
	}
	return c.carried.Flush()
}

// cycles asks for streams as others end.
func (c *consumer) cycles() error {
	asked := min(c.spec.InFlight, c.spec.Streams)
	if err := c.askFor(0, asked); err != nil {
		return err
	}
	for asked < c.spec.Streams {
		if err := c.sink.Await(c.ended); err != nil {
			return err
		}
		to := min(c.spec.Streams, asked+1+len(c.ended))
		for range to - asked - 1 {
			<-c.ended
		}
		if err := c.askFor(asked, to); err != nil {
			return err
		}
		asked = to
	}
	return nil
}
