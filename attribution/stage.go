// SPDX-License-Identifier: Apache-2.0

package attribution

import "time"

// Stage is one named part of a passage (DESIGN.md section 5). The numbers are
// shared with bpf/include/stage.h.
type Stage int

// The stages of an exchange on a plain connection, in the order in which time
// passes through them.
const (
	AcceptWait Stage = iota
	WakeToRun
	RuntimeHandoff
	Reader
	Engine
	SendQueue
	Unexplained
	NumStages
)

var stageNames = [NumStages]string{
	"accept_wait", "wake_to_run", "runtime_handoff", "reader", "engine", "send_queue", "unexplained",
}

// String returns the stage's name as reports and metrics spell it.
func (s Stage) String() string {
	if s < 0 || s >= NumStages {
		return "invalid"
	}
	return stageNames[s]
}

// Breakdown is an interval and its partition: the stages add up to Total.
type Breakdown struct {
	Total  time.Duration
	Stages [NumStages]time.Duration
}
