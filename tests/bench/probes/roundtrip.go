// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench"
	"github.com/velo-agent/velo-agent/tests/results"
)

// The two forms of the ping-pong.
const (
	oneCPU  = "ping-pong, both ends on one CPU"
	twoCPUs = "ping-pong, one CPU each"
)

// pingPong is a pair of processes that pass 100 bytes to and fro.
type pingPong struct {
	client *bench.Child
	port   uint16
	slice  time.Duration
}

// newPingPong pins the server to CPU 0 and the client to clientCPU.
func newPingPong(r *rig, slice time.Duration, clientCPU int) (*pingPong, error) {
	server, err := r.child("Echo", bench.Quiet...)
	if err != nil {
		return nil, err
	}
	var port int
	if err := server.Call("Echo.Listen", bench.Where{CPU: 0}, &port); err != nil {
		return nil, err
	}
	p := &pingPong{port: uint16(port), slice: slice}
	if p.client, err = r.child("PingPong", bench.Quiet...); err != nil {
		return nil, err
	}
	where := bench.Where{CPU: clientCPU, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	return p, p.client.Call("PingPong.Connect", where, &bench.Nothing{})
}

// play returns the time per round trip in ns: the lower quartile of batches, which
// processes that take the CPU away now and then do not move.
func (p *pingPong) play(bool) (float64, error) {
	batches, err := p.batches(p.slice)
	if err != nil || len(batches) == 0 {
		return 0, err
	}
	slices.Sort(batches)
	return batches[len(batches)/4], nil
}

func (p *pingPong) batches(d time.Duration) (batches []float64, err error) {
	err = p.client.Call("PingPong.Play", d, &batches)
	return batches, err
}

// roundTripArms are measured in each form; the short one leaves out those that are
// for information.
func (r *rig) roundTripArms() []string {
	arms := []string{bench.ArmNull, bench.ArmEmpty, bench.ArmUnwatched, bench.ArmWatched}
	if r.judge {
		arms = append(arms, bench.ArmNoSendStart, bench.ArmEmptyNoSendStart, bench.ArmTraced, bench.ArmExact)
	}
	return arms
}

// roundTrip measures what each arm adds to a round trip, with both ends on one
// CPU or on two. A socket that an arm watches carries that arm's storage for good,
// so each of those has a pair of its own.
func roundTrip(r *rig, title string, slice time.Duration, clientCPU int) (map[string][]bench.Pair[float64], error) {
	plain, err := newPingPong(r, slice, clientCPU)
	if err != nil {
		return nil, err
	}
	p := &bench.Pairs[float64]{Rounds: r.pairs, Settle: 10 * time.Millisecond}
	for _, name := range r.roundTripArms() {
		pair := plain
		if slices.Contains([]string{bench.ArmWatched, bench.ArmNoSendStart, bench.ArmTraced, bench.ArmExact}, name) {
			if pair, err = newPingPong(r, slice, clientCPU); err != nil {
				return nil, err
			}
		}
		a, err := held(r, name, pair.port, pair.play)
		if err != nil {
			return nil, err
		}
		p.Arms = append(p.Arms, a)
	}
	pairs, err := run(r, title, p)
	if err == nil {
		printRoundTrips(r, title, pairs)
	}
	return pairs, err
}

func same(x float64) float64 { return x }

// priceOf names the arm with empty programs that an arm is compared with.
func priceOf(arm string) string {
	if arm == bench.ArmNoSendStart {
		return bench.ArmEmptyNoSendStart
	}
	return bench.ArmEmpty
}

func printRoundTrips(r *rig, title string, pairs map[string][]bench.Pair[float64]) {
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s: the round trip\twithout, µs\tadded, µs\t× its price\tthroughput\n", title)
	for _, n := range r.roundTripArms() {
		var off []float64
		for _, q := range pairs[n] {
			off = append(off, (q.Before+q.After)/2e3)
		}
		price := "-"
		if n != bench.ArmNull && n != priceOf(n) && n != bench.ArmEmptyNoSendStart {
			price = bench.RatioOf(bench.Added(pairs[n], same), bench.Added(pairs[priceOf(n)], same)).String()
		}
		added := bench.Added(pairs[n], func(ns float64) float64 { return ns / 1e3 })
		fmt.Fprintf(w, "  %s\t%.2f\t%v\t%s\t%v\n", n, bench.Median(off), bench.MedianOf(added), price, throughput(pairs[n]))
	}
	w.Flush()
	fmt.Println()
}

// judgePrice holds what the arms add against multiples of the price.
func judgePrice(r *rig, pairs map[string][]bench.Pair[float64]) {
	added := func(arm string) []float64 { return bench.Added(pairs[arm], same) }
	null, price := bench.MedianOf(added(bench.ArmNull)), bench.MedianOf(added(bench.ArmEmpty))
	unclear := ""
	switch {
	case r.shared > 0.1:
		unclear = fmt.Sprintf("not the whole price: programs of others were attached beside %.0f %% of the pairs", 100*r.shared)
	case null.Width() > price.Value/2:
		unclear = fmt.Sprintf("the machine is too noisy: the null arm's interval is %.0f ns wide, the price %.0f ns", null.Width(), price.Value)
	}
	note := fmt.Sprintf("price %v ns, null arm %v ns", price, null)
	for _, l := range []struct {
		arm  string
		goal float64
	}{{bench.ArmUnwatched, 1.2}, {bench.ArmWatched, 1.8}} {
		ratio := bench.RatioOf(added(l.arm), added(bench.ArmEmpty))
		r.check(limit{"round trip, " + l.arm + " ÷ price of the hooks", "×", l.goal, results.Lower}, ratio, r.pairs, note, unclear)
	}
}

func judgeThroughput(r *rig, title string, pairs map[string][]bench.Pair[float64]) {
	r.check(limit{title + ", throughput watched", "×", 0.89, results.Higher}, throughput(pairs[bench.ArmWatched]), r.pairs,
		fmt.Sprintf("null arm %v", throughput(pairs[bench.ArmNull])), "")
}

// throughput estimates round trips per second as a multiple of those without.
func throughput(pairs []bench.Pair[float64]) bench.Interval {
	return bench.MedianOf(bench.Relative(pairs, func(ns float64) float64 { return 1 / ns }))
}
