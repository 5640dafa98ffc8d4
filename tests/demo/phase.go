// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/velo-agent/velo-agent/tests/peers"
)

// phase is what is wrong with the demo at one time.
type phase int

// The phases, in the order in which they take turns.
const (
	slowAccept  phase = iota // the server takes each waiting connection late
	think                    // the server thinks before the first token
	lateRead                 // the server reads the first request of a connection late
	stalledRead              // two clients stop reading while the answer is large
	calm                     // nothing
	numPhases
)

var phaseNames = [numPhases]string{"slow accept", "think", "late read", "stalled reader", "calm"}

func (p phase) String() string { return phaseNames[p] }

// schedule lets the phases take turns. The server and the driver's clients
// share its epoch, so both know which one it is.
type schedule struct {
	epoch  int64         // CLOCK_MONOTONIC, ns
	length time.Duration // of one phase
}

func (s schedule) now() phase { return s.at(peers.Now()) }

func (s schedule) at(now int64) phase {
	if now < s.epoch {
		return calm
	}
	return phase((now - s.epoch) / int64(s.length) % int64(numPhases))
}
