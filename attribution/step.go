// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"net/netip"
	"time"
)

// StepKind is what happened on a connection (enum step_kind in bpf/include/conn.h).
type StepKind uint16

// The steps of a connection.
const (
	Arrived     StepKind = 1 + iota // Pos bytes became readable
	Ran                             // the thread that the arrival woke runs
	Handed                          // from here on it is for the reading thread, another one, to read
	Read                            // the application has copied up to Pos
	Send                            // a write begins that will end at Pos
	Sent                            // a write has returned; Pos bytes have left
	Left                            // Pos bytes have left, seen later than the return
	Established                     // the handshake is complete
	Accepted                        // the application has the connection
	Cut                             // the newest write ends at Pos after all
	numStepKinds
)

// WriteClass is what a response write is (enum write_class).
type WriteClass uint16

// The classes of a write.
const (
	Content WriteClass = iota // carries content, or nothing is known of it
	Headers                   // an HTTP header and nothing more
	Interim                   // 100 Continue and its like: no answer yet
	Role                      // an event that names the role, without text
	End                       // the closing chunk or [DONE]: no record
)

// Step is one entry of a connection's flight recorder.
type Step struct {
	Time time.Duration // CLOCK_MONOTONIC
	Pos  uint64        // a position; only its low 32 bits are known to the kernel
	Kind StepKind
	// Class is a WriteClass of a Send. It is 1 for a Read of which only the
	// outcome was seen, an Accepted that is an upper bound, and a Cut that
	// left something.
	Class WriteClass
}

// TraceKind says which interval a Trace ends.
type TraceKind uint16

// The kinds of a Trace.
const (
	TraceTTFT TraceKind = 1 + iota
	TraceGap
)

// String returns "ttft" or "gap".
func (k TraceKind) String() string {
	if k == TraceGap {
		return "gap"
	}
	return "ttft"
}

// Trace is one interval of an exchange that left the kernel with its last steps.
type Trace struct {
	Kind     TraceKind
	Cookie   uint64 // of the socket, unique while the node is up
	NetNS    uint32
	Remote   netip.AddrPort
	Port     int    // index of the watched port
	Exchange uint32 // ordinal of the exchange on its connection, from 1
	Begin    time.Duration
	End      time.Duration
	Pos      uint64    // position after the write's last byte
	Counted  Breakdown // what the kernel program computed
	Interval bool      // the accept is known by an upper bound only
	Steps    []Step    // oldest first
	Lost     int       // older steps that the recorder no longer had
}
