// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/preflight"
)

// TestSlowestOfTwins: a stream belongs to the port of its own network namespace.
func TestSlowestOfTwins(t *testing.T) {
	list := newTargets()
	for i, ns := range []uint64{7, 8} {
		list.list = append(list.list, &target{index: i, Listener: preflight.Listener{Port: 8000, NetNS: ns}})
	}
	n := newSeen()
	for i := range 2 {
		n.streams[streamKey{cookie: uint64(i)}] = &stream{port: i, ttft: &attribution.Trace{
			Counted: attribution.Breakdown{Total: time.Duration(i+1) * time.Second},
		}}
	}
	got := n.slowest(list)
	if len(got) != 2 || got[0].NetNS != 8 || got[1].NetNS != 7 {
		t.Errorf("the slowest are %+v", got)
	}
}
