// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/sockqueue"
)

// AgentService is the child process that holds the agent, or the empty programs.
type AgentService struct {
	session *agent.Session
	empty   io.Closer
	links   *linkSwitch // where they are held
	stats   io.Closer
	marked  *bpf.Maps
}

// Attachment says what to attach.
type Attachment struct {
	Arm   string
	Port  uint16 // what the agent watches
	Hooks []Hook // of the arms with empty programs
	Hold  bool   // only load and mark; Switch then attaches
}

// Attached is what came of it.
type Attached struct {
	Took    time.Duration
	Hooks   []Hook
	Missing []string // signals that no rung gives
}

// Attach attaches an arm.
func (a *AgentService) Attach(at Attachment, done *Attached) (err error) {
	begun := time.Now()
	switch at.Arm {
	case ArmNull:
	case ArmEmpty, ArmEmptyNoSendStart:
		a.empty, err = attachEmpty(at.Hooks)
	default:
		o := options(at.Arm)
		o.Watch.Ports = []uint16{at.Port}
		a.session, err = agent.Open(context.Background(), o)
		if err == nil && a.session.Missing() != nil {
			err = errors.Join(a.session.Missing(), a.close())
		}
	}
	if err != nil {
		return err
	}
	done.Took = time.Since(begun)
	if done.Hooks, err = ownHooks(); err != nil {
		return err
	}
	if at.Hold {
		if a.links, err = takeLinks(); err != nil {
			return err
		}
	}
	if a.session == nil {
		return nil
	}
	m, err := a.session.Measure()
	if err != nil {
		return err
	}
	for _, c := range m.Coverage {
		if c.Missing {
			done.Missing = append(done.Missing, c.Signal)
		}
	}
	return nil
}

// Switch attaches what is held, or detaches it.
func (a *AgentService) Switch(on bool, _ *Nothing) error { return a.links.set(on) }

// Detach detaches it.
func (a *AgentService) Detach(_ Nothing, _ *Nothing) error { return a.close() }

func (a *AgentService) close() error {
	var errs []error
	if a.links != nil {
		errs = append(errs, a.links.close())
	}
	if a.session != nil {
		errs = append(errs, a.session.Close())
	}
	if a.empty != nil {
		errs = append(errs, a.empty.Close())
	}
	a.session, a.empty, a.links = nil, nil, nil
	return errors.Join(errs...)
}

// Others counts the tracing programs that other processes have attached.
func (a *AgentService) Others(_ Nothing, n *int) (err error) {
	*n, err = otherLinks()
	return err
}

// Statistics switches the kernel's run statistics on or off.
func (a *AgentService) Statistics(on bool, _ *Nothing) (err error) {
	if !on {
		err = a.stats.Close()
		a.stats = nil
		return err
	}
	a.stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	return err
}

// Costs answers with the statistics of what is attached.
func (a *AgentService) Costs(_ Nothing, costs *[]ProgramCost) (err error) {
	*costs, err = ownCosts()
	return err
}

// Seen is what the agent says of the port that it watches, and of itself.
type Seen struct {
	Connections, Exchanges uint64
	RSSBytes, MapBytes     uint64
	Lost                   map[string]uint64
}

// Seen asks the agent.
func (a *AgentService) Seen(_ Nothing, seen *Seen) error {
	m, err := a.session.Measure()
	if err != nil {
		return err
	}
	if len(m.Ports) != 1 || m.Ports[0].Connections == nil {
		return fmt.Errorf("the agent watches %d ports, want 1 with figures", len(m.Ports))
	}
	*seen = Seen{
		Connections: *m.Ports[0].Connections, Exchanges: *m.Ports[0].Exchanges,
		RSSBytes: m.Agent.RSSBytes, MapBytes: m.Agent.KernelMapBytes, Lost: m.Agent.Lost,
	}
	return nil
}

// Marking is how long the walk over the sockets took and what it marked: told is
// how many sockets it told of, marked how many the maps then knew, and bytes what
// the agent thinks that maps and marks take in the kernel.
type Marking struct {
	Took         time.Duration
	Told, Marked int
	Bytes        uint64
}

// Mark marks the sockets of a port in this network namespace in fresh maps,
// without attaching anything: the step of Open alone. Unmark frees the maps.
func (a *AgentService) Mark(port uint16, out *Marking) (err error) {
	if a.marked, err = bpf.NewMaps(); err != nil {
		return err
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &ns); err != nil {
		return fmt.Errorf("asking for the network namespace: %w", err)
	}
	if err := a.marked.Watch(bpf.WatchKey{NetNS: uint32(ns.Ino), Port: port}, 0); err != nil {
		return err
	}
	marker, err := sockqueue.NewMarker(a.marked)
	if err != nil {
		return err
	}
	defer marker.Close()
	begun := time.Now()
	err = marker.Mark(func(s sockqueue.Socket) {
		if s.State == sockqueue.Established {
			out.Told++
		}
	})
	out.Took = time.Since(begun)
	if err != nil {
		return err
	}
	figures, err := a.marked.Port(0)
	if err != nil {
		return err
	}
	out.Marked, out.Bytes = int(figures.Connections), a.marked.Memory(figures.Connections)
	return nil
}

// Unmark frees what Mark made.
func (a *AgentService) Unmark(_ Nothing, _ *Nothing) error { return a.marked.Close() }
