// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/preflight"
)

func TestBlindTo(t *testing.T) {
	own := ownNetNS()
	if own == 0 {
		t.Fatal("the own network namespace is not known")
	}
	entering := fmt.Errorf("entering: %w", unix.EPERM)
	for _, tt := range []struct {
		name string
		ns   uint64
		pid  int
		err  error
		want error
	}{
		{"here, by no process", own, 0, nil, nil},
		{"here", own, 7, nil, nil},
		{"of no known namespace", 0, 0, nil, errNoNetNS},
		{"elsewhere, by no process", own + 1, 0, nil, errNoNetNS},
		{"elsewhere, not let in", own + 1, 7, entering, errNoEntry},
		{"elsewhere, let in", own + 1, 7, nil, nil},
		{"another fault", own, 7, errors.New("torn"), nil},
	} {
		if got := blindTo(tt.ns, tt.pid, tt.err); !errors.Is(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestHiddenIsCoveredByPort(t *testing.T) {
	at := func(port uint16, blind error, pids ...int) *target {
		return &target{Listener: preflight.Listener{Port: port}, blind: blind, pids: pids}
	}
	s := &Session{noStats: errNoStats, targets: &targets{list: []*target{
		at(1, nil, 7), at(2, errNoEntry, 8), at(3, errNoEntry, 9), at(4, nil),
	}}}
	var said []string
	for _, c := range s.hidden() {
		if !c.Missing {
			t.Errorf("%s is not missing", c.Signal)
		}
		said = append(said, c.Signal+" "+c.Note)
	}
	if len(said) != 3 || !strings.Contains(said[0], "port 2, 3: missing right: CAP_SYS_ADMIN") ||
		!strings.HasPrefix(said[1], "owner ") || !strings.Contains(said[1], "port 4: ") || !strings.HasPrefix(said[2], "program_cost ") {
		t.Errorf("said %q", said)
	}
	if s.targets.allBlind() != nil {
		t.Error("two ports can be seen")
	}
	s.targets.list = s.targets.list[1:3]
	if !errors.Is(s.targets.allBlind(), errNoEntry) {
		t.Error("no port can be seen, and it is not told")
	}
}

// Without a known process nobody knows who was woken: that time is unexplained.
func TestToldWithoutOwner(t *testing.T) {
	b := attribution.Breakdown{Total: 10 * time.Millisecond}
	b.Stages[attribution.WakeToRun], b.Stages[attribution.Reader], b.Stages[attribution.Engine] = time.Millisecond, 2*time.Millisecond, 7*time.Millisecond
	got := (&target{}).told(b)
	if got.Stages[attribution.Unexplained] != 3*time.Millisecond || got.Stages[attribution.Reader] != 0 || got.Stages[attribution.Engine] != 7*time.Millisecond {
		t.Errorf("told %v", got.Stages)
	}
	if (&target{pids: []int{7}}).told(b) != b {
		t.Error("a known process's times were changed")
	}
}
