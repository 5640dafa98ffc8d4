// SPDX-License-Identifier: Apache-2.0

// Scale measures the agent with 10,000 connections that are older than it and
// 10,000 that come while it watches (make scale).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/preflight"
	"github.com/velo-agent/velo-agent/tests/bench"
	"github.com/velo-agent/velo-agent/tests/results"
)

const (
	memoryGoal  = 80 // MiB
	markingGoal = 1  // s
	mib         = 1 << 20
)

func main() {
	bench.MaybeChild()
	conns := flag.Int("connections", 10_000, "connections before the agent, and as many after")
	flag.Parse()
	out := results.New("scale")
	if err := measure(out, *conns); err != nil {
		out.Fail(err.Error())
	}
	os.Exit(out.Finish(os.Stdout, "build/results"))
}

type rig struct {
	out              *results.Run
	servers, clients []*bench.Child
	agent            *bench.Child
	port             int
	group            *bench.Cgroup
}

func measure(out *results.Run, conns int) (err error) {
	// Two servers and two clients share the connections: the limit of open files
	// cannot be raised everywhere.
	if err := bench.RaiseFiles(uint64(conns + conns/5)); err != nil {
		return err
	}
	r := &rig{out: out}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.start(); err != nil {
		return err
	}
	if err := r.dial(0, conns, conns); err != nil {
		return err
	}
	if err := r.marking(conns); err != nil {
		return err
	}
	var at bench.Attached
	if err := r.agent.Call("Agent.Attach", bench.Attachment{Arm: bench.ArmServerTraced, Port: uint16(r.port)}, &at); err != nil {
		return err
	}
	fmt.Printf("opening the agent took %v\n", at.Took.Round(time.Millisecond))
	if err := r.check("older than the agent", conns); err != nil {
		return err
	}
	if err := r.dial(1, conns, 2*conns); err != nil {
		return err
	}
	if err := r.check("and as many that came later", 2*conns); err != nil {
		return err
	}
	return r.idle(2 * conns)
}

func (r *rig) start() (err error) {
	if r.port, err = bench.FreePort(); err != nil {
		return err
	}
	for range 2 {
		server, err := bench.Start("Holder")
		if err != nil {
			return err
		}
		r.servers = append(r.servers, server)
		if err := server.Call("Holder.Listen", r.port, &r.port); err != nil {
			return err
		}
		client, err := bench.Start("Dialer")
		if err != nil {
			return err
		}
		r.clients = append(r.clients, client)
	}
	if r.agent, err = bench.Start("Agent"); err != nil {
		return err
	}
	if r.group, err = bench.NewCgroup(r.agent.PID); err != nil {
		fmt.Printf("no cross-check of the memory: %v\n", err)
	}
	return nil
}

func (r *rig) close() error {
	if r.agent != nil {
		r.agent.Stop()
	}
	for _, c := range append(r.clients, r.servers...) {
		c.Stop()
	}
	if r.group == nil {
		return nil
	}
	return r.group.Remove()
}

// dial lets a client open n connections more and waits until the servers hold all.
func (r *rig) dial(client, n, all int) error {
	begun := time.Now()
	pid := os.Getpid() // another run's ports may still be in TIME_WAIT
	source := fmt.Sprintf("127.%d.%d.%d", 1+client, pid>>8&255, 1+pid&127)
	plan := bench.DialPlan{Source: source, Addr: fmt.Sprintf("127.0.0.1:%d", r.port), Conns: n}
	if err := r.clients[client].Call("Dialer.Dial", plan, &bench.Nothing{}); err != nil {
		return err
	}
	for {
		held, err := r.held()
		if err != nil {
			return err
		}
		if held == int64(all) {
			fmt.Printf("%d connections are established, the last %d in %v\n", all, n, time.Since(begun).Round(time.Millisecond))
			return nil
		}
		if time.Since(begun) > time.Minute {
			return fmt.Errorf("the servers hold %d of %d connections", held, all)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *rig) held() (sum int64, err error) {
	for _, s := range r.servers {
		var n int64
		if err := s.Call("Holder.Held", bench.Nothing{}, &n); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// talk makes an exchange on every connection and returns how many there were.
func (r *rig) talk() (sum int, err error) {
	for _, c := range r.clients {
		var n int
		if err := c.Call("Dialer.Talk", bench.Nothing{}, &n); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// marking times the step of Open that marks, in maps of its own, a few times, and
// compares what the kernel charges for maps and marks with what the agent counts.
func (r *rig) marking(conns int) error {
	const runs = 5
	var took, charged []float64
	var m bench.Marking
	for range runs {
		before := r.charged()
		m = bench.Marking{}
		if err := r.agent.Call("Agent.Mark", uint16(r.port), &m); err != nil {
			return err
		}
		took = append(took, m.Took.Seconds())
		charged = append(charged, r.charged()-before)
		if err := r.agent.Call("Agent.Unmark", bench.Nothing{}, &bench.Nothing{}); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the kernel frees them after a grace period
	}
	r.out.Add("connections that one walk marks", float64(m.Marked), "connections", float64(conns), results.Higher, m.Told, "")
	r.out.Add("marking them", bench.Median(took), "s", markingGoal, results.Lower, runs, fmt.Sprintf("median of %d runs, fresh maps each", runs))
	if r.group != nil {
		fmt.Printf("maps and %d marks: the agent counts %.1f MiB, the kernel charges %.1f MiB\n", conns, float64(m.Bytes)/mib, bench.Median(charged))
	}
	return nil
}

// charged is what the agent's cgroup holds, in MiB; 0 where there is none.
func (r *rig) charged() float64 {
	if r.group == nil {
		return 0
	}
	n, err := r.group.Bytes()
	if err != nil {
		return 0
	}
	return float64(n) / mib
}

// check counts what the agent watches against the kernel's own list, proves it by
// an exchange on every connection, and looks at the memory.
func (r *rig) check(which string, conns int) error {
	listed, err := preflight.Host{}.Established(r.servers[0].PID, uint16(r.port))
	if err != nil {
		return err
	}
	if listed != conns {
		return fmt.Errorf("the kernel lists %d connections, want %d", listed, conns)
	}
	var before, after bench.Seen
	if err := r.agent.Call("Agent.Seen", bench.Nothing{}, &before); err != nil {
		return err
	}
	exchanges, err := r.talk()
	if err != nil {
		return err
	}
	if err := r.agent.Call("Agent.Seen", bench.Nothing{}, &after); err != nil {
		return err
	}
	missed := float64(listed) - float64(after.Connections)
	r.out.Add(fmt.Sprintf("missed of %d connections, %s", conns, which), max(missed, -missed), "connections", 0, results.Lower, listed, "against sock_diag's list")
	unseen := float64(exchanges) - float64(after.Exchanges-before.Exchanges)
	r.out.Add(fmt.Sprintf("exchanges not seen, one on each of %d", conns), max(unseen, -unseen), "exchanges", 0, results.Lower, exchanges, lost(after.Lost))
	r.memory(conns, after)
	return nil
}

// idle prints what the agent's timers cost while nothing happens.
func (r *rig) idle(conns int) error {
	c, err := bench.Cores([]*bench.Child{r.agent}, 6*time.Second)
	if err == nil {
		fmt.Printf("with %d idle connections the agent takes %.1f %% of a core\n", conns, 100*c.Children)
	}
	return err
}

// lost lists what was lost.
func lost(counters map[string]uint64) string {
	var out []string
	for name, n := range counters {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s %d", name, n))
		}
	}
	if len(out) == 0 {
		return "nothing lost"
	}
	slices.Sort(out)
	return "lost: " + strings.Join(out, ", ")
}

// memory judges the agent's memory with that of its kernel maps.
func (r *rig) memory(conns int, seen bench.Seen) {
	note := fmt.Sprintf("process %.1f, kernel maps %.1f", float64(seen.RSSBytes)/mib, float64(seen.MapBytes)/mib)
	if n := r.charged(); n > 0 {
		note += fmt.Sprintf("; charged to the agent's cgroup with names cached by /proc: %.1f", n)
	}
	r.out.Add(fmt.Sprintf("memory with kernel maps, %d connections", conns), float64(seen.RSSBytes+seen.MapBytes)/mib, "MiB", memoryGoal, results.Lower, 1, note)
}
