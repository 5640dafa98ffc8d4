// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const none = "0000000000000000"

// mayHave are the capabilities of the helper, as docs/rights.md lists them.
var mayHave = []uint{
	unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_NET_ADMIN, unix.CAP_DAC_READ_SEARCH,
}

func TestRights(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}", s.port))
	s.ask(t, 20)
	d.becomes(t, 20, "velo_agent_exchanges_total", "port", s.label())
	helper := d.helper(t)
	attachedBy(t, helper) // or it fails

	for _, st := range statuses(t, d.PID) {
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if st[set] != none {
				t.Errorf("a thread of the daemon has %s %s", set, st[set])
			}
		}
		for _, ids := range []string{"Uid", "Gid"} {
			if slices.Contains(strings.Fields(st[ids]), "0") {
				t.Errorf("a thread of the daemon has %s %s", ids, st[ids])
			}
		}
		if st["Groups"] != "" || st["NoNewPrivs"] != "1" {
			t.Errorf("a thread of the daemon has the groups %q, NoNewPrivs %s", st["Groups"], st["NoNewPrivs"])
		}
	}
	var mask uint64
	for _, c := range mayHave {
		mask |= 1 << c
	}
	for _, st := range statuses(t, helper) {
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if have, err := strconv.ParseUint(st[set], 16, 64); err != nil || have&^mask != 0 {
				t.Errorf("a thread of the helper has %s %s, at most %x is documented (%v)", set, st[set], mask, err)
			}
		}
		if st["NoNewPrivs"] != "1" {
			t.Errorf("a thread of the helper has NoNewPrivs %s", st["NoNewPrivs"])
		}
	}
	if l := listening(t, helper); len(l) > 0 {
		t.Errorf("the helper listens on %v", l)
	}
	if l := listening(t, d.PID); len(l) != 2 {
		t.Errorf("the daemon listens on %v, not on one address and one socket", l)
	}
}
