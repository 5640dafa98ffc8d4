// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench"
	"github.com/velo-agent/velo-agent/tests/results"
)

const (
	streamCount = 64
	streamGap   = 5 * time.Millisecond
)

// cores is CPU time in cores: what server, client and agent used, and what the
// whole node was busy with. In the kernel, loopback works on the sender's time.
type cores struct{ ours, node float64 }

// pacedStreams measures the CPU time that the agent, with its user space, adds to
// a server that streams to 64 clients, 200 chunks a second each. slice should hold
// whole periods of the agent's timers, 2 s.
func pacedStreams(r *rig, pairs int, slice time.Duration, arms ...string) error {
	server, port, err := r.streamServer()
	if err != nil {
		return err
	}
	client, err := r.child("Load")
	if err != nil {
		return err
	}
	plan := bench.LoadPlan{Addr: addr(port), Path: "/paced/" + streamGap.String(), Conns: streamCount, CPU: 1, Endless: true}
	if err := client.Call("Load.Open", plan, &bench.Nothing{}); err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	var chunks []float64
	measure := func(on bool) (cores, error) {
		children := []*bench.Child{server, client}
		if on {
			children = append(children, r.watcher)
		}
		var before, after uint64
		if err := client.Call("Load.Bytes", bench.Nothing{}, &before); err != nil {
			return cores{}, err
		}
		c, err := bench.Cores(children, slice)
		if err != nil {
			return cores{}, err
		}
		if err := client.Call("Load.Bytes", bench.Nothing{}, &after); err != nil {
			return cores{}, err
		}
		chunks = append(chunks, float64(after-before)/float64(bench.ChunkOnWire)/slice.Seconds())
		return cores{c.Children, c.Node}, nil
	}
	p := &bench.Pairs[cores]{Rounds: pairs, Settle: 100 * time.Millisecond, Share: true}
	for _, name := range arms {
		p.Arms = append(p.Arms, opened(r, r.watcher, name, uint16(port), measure))
	}
	got, err := run(r, "paced SSE", p)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%.0f chunks a second, %v", bench.Median(chunks), "%s")
	for _, name := range arms {
		ours := bench.MedianOf(bench.Added(got[name], func(c cores) float64 { return 100 * c.ours }))
		node := bench.MedianOf(bench.Added(got[name], func(c cores) float64 { return 100 * c.node }))
		fmt.Printf("paced SSE, %s: added %v %% of a core in server, client and agent, %v in the whole node\n", name, ours, node)
		if name == bench.ArmServer {
			r.check(limit{"SSE server, 64 streams × 200 chunks/s, CPU added", "% of a core", 3, results.Lower}, ours, pairs,
				fmt.Sprintf(note, fmt.Sprintf("whole node %v", node)), "")
		}
	}
	fmt.Println()
	return nil
}

func (r *rig) streamServer(env ...string) (*bench.Child, int, error) {
	server, err := r.child("Streams", env...)
	if err != nil {
		return nil, 0, err
	}
	var port int
	err = server.Call("Streams.Listen", bench.Nothing{}, &port)
	return server, port, err
}

func addr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// saturated measures how many answers a second a busy server gives.
func saturated(r *rig, name string, pairs int, slice time.Duration, port uint16, plan bench.LoadPlan, arms ...string) error {
	client, err := r.child("Load")
	if err != nil {
		return err
	}
	if err := client.Call("Load.Open", plan, &bench.Nothing{}); err != nil {
		return err
	}
	measure := func(bool) (float64, error) {
		var got bench.LoadResult
		err := client.Call("Load.Run", slice, &got)
		return float64(got.Answers) / got.Took.Seconds(), err
	}
	p := &bench.Pairs[float64]{Rounds: pairs, Settle: 20 * time.Millisecond}
	for _, arm := range arms {
		a, err := held(r, arm, port, measure)
		if err != nil {
			return err
		}
		p.Arms = append(p.Arms, a)
	}
	got, err := run(r, name, p)
	if err != nil {
		return err
	}
	for _, arm := range arms {
		ratio := bench.MedianOf(bench.Relative(got[arm], same))
		var off []float64
		for _, q := range got[arm] {
			off = append(off, (q.Before+q.After)/2)
		}
		fmt.Printf("%s, %s: throughput %v × that of %.0f answers a second\n", name, arm, ratio, bench.Median(off))
		if arm == bench.ArmServer {
			r.check(limit{name + ", throughput", "×", 0.97, results.Higher}, ratio, pairs,
				fmt.Sprintf("null arm %v", bench.MedianOf(bench.Relative(got[bench.ArmNull], same))), "")
		}
	}
	fmt.Println()
	return nil
}

// saturatedStreams measures the Go server, alone on CPU 0, with streams of 64
// chunks back to back.
func saturatedStreams(r *rig, pairs int, slice time.Duration, arms ...string) error {
	server, port, err := r.streamServer("GOMAXPROCS=1")
	if err != nil {
		return err
	}
	if err := bench.PinProcess(server.PID, 0); err != nil {
		return err
	}
	plan := bench.LoadPlan{Addr: addr(port), Path: "/64", Conns: 16, CPU: 1}
	return saturated(r, "saturated SSE server", pairs, slice, uint16(port), plan, arms...)
}

// saturatedNginx measures nginx, alone on CPU 0, that serves a file of 1 KiB.
func saturatedNginx(r *rig, pairs int, slice time.Duration, arms ...string) error {
	n, err := bench.StartNginx()
	if err != nil {
		r.out.Skip("nginx, static with keep-alive, throughput", "×", 0.97, results.Higher, err.Error())
		return nil
	}
	r.stops = append(r.stops, n.Stop)
	if err := bench.PinProcess(n.PID, 0); err != nil {
		return err
	}
	plan := bench.LoadPlan{Addr: n.Addr, Path: "/small", Conns: 16, CPU: 1}
	return saturated(r, "nginx, static with keep-alive", pairs, slice, n.Port, plan, arms...)
}
