// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/accept"
	"github.com/velo-agent/velo-agent/bpf/ladder"
	"github.com/velo-agent/velo-agent/bpf/netloss"
	"github.com/velo-agent/velo-agent/bpf/sched"
	"github.com/velo-agent/velo-agent/bpf/sockqueue"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// signal is one thing that a session wants to see.
type signal struct {
	ladder.Signal
	needed bool   // without it no stage can be told
	lost   string // what is lost without it
}

// signals lists what o asks for, in the order in which it is attached: what makes
// a connection known comes before what happens on it.
func (o *Options) signals(m *bpf.Maps) []signal {
	list := []signal{
		{accept.States(m), false, "connections that begin after the agent"},
		{accept.Wait(m, o.ExactAccept), false, "accept_wait"},
	}
	if !o.NoSched {
		list = append(list, signal{sched.WakeToRun(m), false, "wake_to_run and runtime_handoff: their time is unexplained; run-queue times by role come from schedstat alone"})
	}
	if !o.NoSendStart {
		list = append(list, signal{sockqueue.SendStart(m), false, "blocked writes (their time is engine) and the content of first writes"})
	}
	return append(list,
		signal{sockqueue.Left(m), true, "TTFT, gaps and every stage"},
		signal{sockqueue.Read(m), true, "TTFT and its stages"},
		signal{sockqueue.Arrived(m), true, "TTFT, and the accept queue's depth at each arrival"},
		signal{netloss.Loss(m), false, "retransmits and resets of each port"},
	)
}

// climb attaches every signal; only a needed one that has no rung is an error,
// and the rest is attached all the same.
func (s *Session) climb() error {
	var missing []error
	for _, sig := range s.opts.signals(s.maps) {
		h := ladder.Climb(sig.Signal, s.opts.Only[sig.Name])
		s.holds = append(s.holds, h)
		s.coverage = append(s.coverage, coverageOf(h, sig.lost))
		if h.Held() {
			s.opts.Log.Info("signal attached", "signal", h.Signal, "rung", h.Rung, "better_refused", len(h.Refused))
			continue
		}
		s.opts.Log.Warn("signal missing", "signal", h.Signal, "error", h.Err())
		if sig.needed {
			missing = append(missing, h.Err())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %w", ErrNoSignal, errors.Join(missing...))
	}
	return nil
}

// loseAll covers every signal where what they all stand on is missing.
func (s *Session) loseAll(what string, err error) {
	s.coverage = append(s.coverage, diagnosis.Coverage{Signal: what, Missing: true, Note: err.Error()})
	for _, sig := range s.opts.signals(s.maps) {
		s.coverage = append(s.coverage, diagnosis.Coverage{Signal: sig.Name, Missing: true, Note: "lost: " + sig.lost})
	}
}

func coverageOf(h *ladder.Hold, lost string) diagnosis.Coverage {
	c := diagnosis.Coverage{Signal: h.Signal, Rung: h.Rung, Missing: !h.Held()}
	for _, r := range h.Refused {
		c.BetterRefused = append(c.BetterRefused, diagnosis.Refused{Rung: r.Rung, Why: r.Err.Error()})
	}
	switch {
	case c.Missing:
		c.Note = "lost: " + lost
	case h.Rung == accept.RungExit:
		c.Note = "slows every system call of the node while it is attached"
	case h.Rung == accept.RungFirstReceive || h.Rung == accept.RungFirstRead:
		c.Note = "accept_wait is an upper bound"
	}
	return c
}
