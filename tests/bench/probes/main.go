// SPDX-License-Identifier: Apache-2.0

// Probes measures what the agent's probes cost on traffic (make bench-probes).
// With -short it takes a minute and judges only what no neighbour can spoil.
package main

import (
	"flag"
	"os"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench"
	"github.com/velo-agent/velo-agent/tests/results"
)

func main() {
	bench.MaybeChild()
	short := flag.Bool("short", false, "a minute: ratios are shown, not judged")
	pairs := flag.Int("pairs", 40, "pairs (off, on, off) per arm")
	part := flag.String("only", "", "one part: roundtrip, programs, streams or saturated")
	flag.Parse()
	out := results.New("bench-probes")
	if err := measure(out, *short, *pairs, *part); err != nil {
		out.Fail(err.Error())
	}
	os.Exit(out.Finish(os.Stdout, "build/results"))
}

// plan is how long the parts take.
type plan struct {
	pairs, paced     int
	patience         time.Duration
	slice            time.Duration // of a round trip or a saturated server
	pacedSlice       time.Duration
	two              bool // both ends on two CPUs, too
	messages         int
	streams, servers []string // arms
}

func measure(out *results.Run, short bool, pairs int, part string) error {
	p := plan{
		pairs: pairs, paced: min(pairs, 30), slice: 80 * time.Millisecond, pacedSlice: 2 * time.Second, two: true, messages: 1_000_000, patience: 3 * time.Minute,
		streams: []string{bench.ArmNull, bench.ArmServer},
		servers: []string{bench.ArmNull, bench.ArmServer, bench.ArmServerTraced},
	}
	if short {
		p = plan{
			pairs: 8, paced: 2, slice: 60 * time.Millisecond, pacedSlice: time.Second, messages: 200_000, patience: 5 * time.Second,
			streams: []string{bench.ArmServer}, servers: []string{bench.ArmNull, bench.ArmServer},
		}
	}
	r, err := newRig(out, !short, p)
	defer r.close()
	if err != nil {
		return err
	}
	parts := []struct {
		name string
		f    func() error
	}{
		{"roundtrip", func() error { return roundTrips(r, p) }},
		{"programs", func() error { return counts(r, p) }},
		{"streams", func() error { return pacedStreams(r, p.paced, p.pacedSlice, p.streams...) }},
		{"saturated", func() error {
			return saturatedStreams(r, p.pairs, 2*p.slice, p.servers...)
		}},
		{"saturated", func() error { return saturatedNginx(r, p.pairs, 2*p.slice, p.servers...) }},
	}
	for _, x := range parts {
		if part != "" && part != x.name {
			continue
		}
		err := x.f()
		r.endPart()
		if err != nil {
			return err
		}
	}
	return nil
}

// roundTrips judges the two forms: on one CPU nothing but the work counts, and
// the noise is smallest beside it; on two, waking the other CPU takes most of the
// time, as it does for most servers.
func roundTrips(r *rig, p plan) error {
	one, err := roundTrip(r, oneCPU, p.slice, 0)
	if err != nil {
		return err
	}
	judgePrice(r, one)
	judgeThroughput(r, oneCPU, one)
	r.endPart()
	if !p.two {
		return nil
	}
	two, err := roundTrip(r, twoCPUs, p.slice, 1)
	if err != nil {
		return err
	}
	judgeThroughput(r, twoCPUs, two)
	return nil
}

func counts(r *rig, p plan) error {
	pair, err := newPingPong(r, 200*time.Millisecond, 0)
	if err != nil {
		return err
	}
	if err := programs(r, pair, p.messages); err != nil {
		return err
	}
	return wakeUps(r, pair, p.messages)
}
