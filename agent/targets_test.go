// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/preflight"
)

func listening(ports ...uint16) []*target {
	var out []*target
	for _, p := range ports {
		out = append(out, &target{Listener: preflight.Listener{Port: p, NetNS: 1, Cookie: uint64(p)}})
	}
	return out
}

func newTargets() *targets {
	return &targets{beyond: map[bpf.WatchKey]bool{}, fold: map[bpf.WatchKey]int{}}
}

func none(int) int { return 0 }

// later is when nobody waits for a server to come back.
var later = time.Now().Add(time.Hour)

// TestIndicesAreUsedAgain: ports that come and go take the places of those that went,
// but not before their last connection is closed.
func TestIndicesAreUsedAgain(t *testing.T) {
	x := newTargets()
	x.merge(listening(1, 2, 3))
	x.list[1].marked = true
	x.merge(listening(1, 3))
	if gone := x.retire(time.Now(), none); len(gone) != 0 {
		t.Fatalf("%d retired at once: the server may come back", len(gone))
	}
	if gone := x.retire(later, func(index int) int { return map[int]int{1: 2}[index] }); len(gone) != 0 || !x.list[1].gone {
		t.Fatalf("%d retired with connections left", len(gone))
	}
	gone := x.retire(later, none)
	if len(gone) != 1 || gone[0].Port != 2 || x.at(1) != nil || len(x.gone) != 1 {
		t.Fatalf("retired %v, to unwatch %v", gone, x.gone)
	}
	if fresh := x.merge(listening(1, 3, 4)); len(fresh) != 1 || fresh[0].index != 1 || fresh[0].marked {
		t.Errorf("the new port is %+v", fresh)
	}
	if x.at(0).Port != 1 || x.at(2).Port != 3 {
		t.Error("the others moved")
	}
}

// TestPortComesBack: a listener that restarts before it was given up keeps its figures.
func TestPortComesBack(t *testing.T) {
	x := newTargets()
	x.merge(listening(1))
	x.list[0].marked = true
	x.merge(nil)
	again := listening(1)
	again[0].Cookie = 99
	if fresh := x.merge(again); len(fresh) != 0 || len(x.list) != 1 || x.list[0].gone || x.list[0].marked || x.list[0].index != 0 {
		t.Errorf("it is %+v; a new socket is to be marked, under the old index", x.list[0])
	}
}

func TestBeyondTheBudget(t *testing.T) {
	var many []uint16
	for p := range uint16(300) {
		many = append(many, 1000+p)
	}
	x := newTargets()
	if fresh := x.merge(listening(many...)); len(fresh) != otherIndex {
		t.Errorf("%d ports are watched for themselves, want %d", len(fresh), otherIndex)
	}
	if other := x.at(otherIndex); other == nil || other.Port != 0 || x.folded != 300-otherIndex || len(x.fold) != 300-otherIndex {
		t.Fatalf("other is %+v, %d folded, %d to fold", other, x.folded, len(x.fold))
	}
	// A port that was folded stays folded, and is counted once.
	x.merge(listening(many[1:]...))
	x.retire(later, none)
	x.merge(listening(many[1:]...))
	if x.folded != 300-otherIndex || x.at(0) != nil {
		t.Errorf("%d folded; index 0 has %v", x.folded, x.at(0))
	}
	x.merge(nil)
	x.retire(later, none)
	if len(x.beyond) != 0 || len(x.list) != 1 || !x.list[0].other() || len(x.gone) != 300 {
		t.Errorf("at the end %d beyond, %d targets, %d to unwatch", len(x.beyond), len(x.list), len(x.gone))
	}
}
