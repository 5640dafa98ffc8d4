// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/accept"
	"github.com/velo-agent/velo-agent/bpf/ladder"
	"github.com/velo-agent/velo-agent/bpf/netloss"
	"github.com/velo-agent/velo-agent/bpf/sched"
	"github.com/velo-agent/velo-agent/bpf/sockqueue"
	"github.com/velo-agent/velo-agent/tests/kernels"
)

// sendStart is the signal without which a blocked write's time is engine.
const sendStart = "send_start"

// tried is one signal and the rungs of it that this kernel takes, best first.
type tried struct {
	signal string
	holds  []string
}

// tryRungs attaches every rung of every signal alone and detaches it again.
func tryRungs(out *lines) ([]tried, error) {
	maps, err := bpf.NewMaps()
	if err != nil {
		return nil, fmt.Errorf("creating the maps: %w", err)
	}
	defer maps.Close()
	var all []tried
	var without []string
	for _, s := range []ladder.Signal{
		accept.States(maps), accept.Wait(maps, true), sched.WakeToRun(maps), sockqueue.SendStart(maps), sockqueue.Left(maps),
		sockqueue.Read(maps), sockqueue.Arrived(maps), sockqueue.LeftLater(maps), netloss.Loss(maps),
	} {
		t := tried{signal: s.Name}
		for _, r := range s.Rungs {
			h := ladder.Climb(s, r.Name)
			line := kernels.Rung{Signal: s.Name, Name: r.Name}
			if h.Held() {
				t.holds = append(t.holds, r.Name)
			} else {
				line.Why = reason(h)
			}
			if err := h.Close(); err != nil {
				return nil, fmt.Errorf("detaching %s: %w", r.Name, err)
			}
			out.line(kernels.Line{Rung: &line})
		}
		all = append(all, t)
		if len(t.holds) == 0 {
			without = append(without, s.Name)
		}
	}
	out.none("signals without a rung", uint64(len(without)), "signals", strings.Join(without, ", "))
	return all, nil
}

// reason is the first line of why a rung does not hold: of the verifier's answer
// its end tells more.
func reason(h *ladder.Hold) string {
	err := h.Refused[0].Err
	if errors.Is(err, ladder.ErrRefused) {
		return err.Error()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// only is the rung of each signal in round n: the n-th that holds, or the last.
// Beyond its ladder the start of a send is left out: it is the longest program, an
// emulated verifier takes more than ten seconds for it, and the agent must do
// without it too.
func only(ladders []tried, n int) map[string]string {
	m := map[string]string{}
	for _, l := range ladders {
		if last := len(l.holds) - 1; last >= n || last >= 0 && l.signal != sendStart {
			m[l.signal] = l.holds[min(n, last)]
		}
	}
	return m
}
