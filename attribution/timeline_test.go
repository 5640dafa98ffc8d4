// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"fmt"
	"strings"
	"time"
)

// timeline builds steps by hand; times are milliseconds from an arbitrary start.
type timeline []Step

const origin = time.Hour

func (l timeline) add(ms int, k StepKind, pos uint32, class WriteClass) timeline {
	return append(l, Step{Time: origin + time.Duration(ms)*time.Millisecond, Pos: uint64(pos), Kind: k, Class: class})
}

func (l timeline) established(ms int) timeline         { return l.add(ms, Established, 0, 0) }
func (l timeline) accepted(ms int) timeline            { return l.add(ms, Accepted, 0, 0) }
func (l timeline) arrived(ms int, pos uint32) timeline { return l.add(ms, Arrived, pos, 0) }
func (l timeline) ran(ms int) timeline                 { return l.add(ms, Ran, 0, 0) }
func (l timeline) handed(ms int) timeline              { return l.add(ms, Handed, 0, 0) }
func (l timeline) read(ms int, pos uint32) timeline    { return l.add(ms, Read, pos, 0) }
func (l timeline) unseenRead(ms int, pos uint32) timeline {
	return l.add(ms, Read, pos, 1)
}

func (l timeline) send(ms int, end uint32, class WriteClass) timeline {
	return l.add(ms, Send, end, class)
}
func (l timeline) sent(ms int, left uint32) timeline { return l.add(ms, Sent, left, 0) }
func (l timeline) left(ms int, left uint32) timeline { return l.add(ms, Left, left, 0) }
func (l timeline) cut(ms int, end uint32) timeline   { return l.add(ms, Cut, end, 1) }
func (l timeline) refused(ms int, end uint32) timeline {
	return l.add(ms, Cut, end, 0)
}

// write is a send that leaves at its return.
func (l timeline) write(ms, until int, end uint32, class WriteClass) timeline {
	return l.send(ms, end, class).sent(until, end)
}

// request is one that is read at once, by the thread that it woke.
func (l timeline) request(ms int, pos uint32) timeline {
	return l.arrived(ms, pos).ran(ms+1).read(ms+2, pos)
}

// told spells an outcome: "first 4", "ttft 10: reader 2 engine 8", "gap 3: engine 3".
func told(o Outcome) []string {
	var out []string
	if o.FirstWrite > 0 {
		out = append(out, fmt.Sprintf("first %d", o.FirstWrite.Milliseconds()))
	}
	if o.Kind == 0 {
		return out
	}
	parts := []string{fmt.Sprintf("%s %d:", o.Kind, o.Total.Milliseconds())}
	for s, d := range o.Stages {
		if d != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", Stage(s), d.Milliseconds()))
		}
	}
	return append(out, strings.Join(parts, " "))
}

func toldAll(outcomes []Outcome) string {
	var all []string
	for _, o := range outcomes {
		all = append(all, told(o)...)
	}
	return strings.Join(all, "; ")
}
