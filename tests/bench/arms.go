// SPDX-License-Identifier: Apache-2.0

package bench

import "github.com/velo-agent/velo-agent/agent"

// The arms by name.
const (
	ArmNull             = "null"                   // nothing is attached
	ArmEmpty            = "empty"                  // empty programs on the hooks of unwatched
	ArmUnwatched        = "unwatched"              // the agent watches another port
	ArmWatched          = "watched"                // both ends, counted tier
	ArmNoSendStart      = "watched, no send_start" // without the hook of tcp_sendmsg_locked
	ArmEmptyNoSendStart = "empty, no send_start"
	ArmTraced           = "watched and traced" // as diagnose does
	ArmExact            = "watched, sys_exit"  // accept watched at every system call's return
	ArmServer           = "server watched"     // one end, counted tier
	ArmServerTraced     = "server watched and traced"
)

// options returns what an arm opens the agent with, but for the port.
func options(arm string) agent.Options {
	o := agent.Options{NoTrace: true, Watch: agent.Watch{BothEnds: true}}
	switch arm {
	case ArmNoSendStart:
		o.NoSendStart = true
	case ArmTraced:
		o.NoTrace = false
	case ArmExact:
		o.ExactAccept = true
	case ArmServer:
		o.Watch.BothEnds = false
	case ArmServerTraced:
		o.Watch.BothEnds, o.NoTrace = false, false
	}
	return o
}
