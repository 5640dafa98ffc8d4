// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/bpf/ladder"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// What the kernel hides from a process without a right.
var (
	errNoEntry = fmt.Errorf("%w: CAP_SYS_ADMIN, to enter the network namespace", ladder.ErrCapability)
	errNoNetNS = fmt.Errorf("%w: CAP_SYS_PTRACE, to see which network namespace it is", ladder.ErrCapability)
	errNoOwner = fmt.Errorf("%w: CAP_SYS_PTRACE, to see which process holds the port", ladder.ErrCapability)
	errNoStats = fmt.Errorf("%w: CAP_SYS_ADMIN, to switch the kernel's run statistics on", ladder.ErrCapability)
	// errHidden: the right is there, and still no process is seen.
	errHidden = errors.New("no process that can be seen holds the port; run in the host's PID namespace (hostPID)")
)

// hidden says what of the targets and of the agent itself could not be had for
// want of a right.
func (s *Session) hidden() []diagnosis.Coverage {
	var out []diagnosis.Coverage
	for _, why := range []error{errNoEntry, errNoNetNS} {
		out = s.coverPorts(out, "sockets", "everything that happens on", why, func(t *target) error { return t.blind })
	}
	const owner = "the process, cgroup, somaxconn, network counters and run-queue times, wake_to_run, runtime_handoff and reader (their time is unexplained) of"
	for _, why := range []error{errNoOwner, errHidden} {
		out = s.coverPorts(out, "owner", owner, why, (*target).ownerless)
	}
	if s.noStats != nil {
		out = append(out, diagnosis.Coverage{Signal: "program_cost", Missing: true, Note: "lost: what each program costs: " + s.noStats.Error()})
	}
	return out
}

func (s *Session) coverPorts(out []diagnosis.Coverage, signal, lost string, why error, of func(*target) error) []diagnosis.Coverage {
	var ports []string
	for _, t := range s.targets.list {
		if !t.gone && errors.Is(of(t), why) {
			ports = append(ports, strconv.Itoa(int(t.Port)))
		}
	}
	if len(ports) == 0 {
		return out
	}
	return append(out, diagnosis.Coverage{Signal: signal, Missing: true, Note: fmt.Sprintf("lost: %s port %s: %v", lost, strings.Join(ports, ", "), why)})
}

// ownerless says why no process of the target is known, or is nil.
func (t *target) ownerless() error {
	switch {
	case len(t.pids) > 0:
		return nil
	case ladder.Has(unix.CAP_SYS_PTRACE):
		return errHidden
	}
	return errNoOwner
}

// told is b without what only a known process's threads can tell.
func (t *target) told(b attribution.Breakdown) attribution.Breakdown {
	if len(t.pids) > 0 {
		return b
	}
	for _, st := range []attribution.Stage{attribution.WakeToRun, attribution.RuntimeHandoff, attribution.Reader} {
		b.Stages[attribution.Unexplained] += b.Stages[st]
		b.Stages[st] = 0
	}
	return b
}

// allBlind is why nothing can be seen of any target, or nil.
func (t *targets) allBlind() error {
	if len(t.list) == 0 || slices.ContainsFunc(t.list, func(x *target) bool { return x.blind == nil }) {
		return nil
	}
	return t.list[0].blind
}

// blindTo is why the sockets of a namespace cannot be walked, err being what
// entering it answered; nil: err has another cause, or is nil. pid is a process in
// it, 0 where none is known.
func blindTo(netNS uint64, pid int, err error) error {
	switch {
	case netNS == 0, pid == 0 && netNS != ownNetNS():
		return errNoNetNS
	case errors.Is(err, fs.ErrPermission):
		return errNoEntry
	}
	return nil
}

func ownNetNS() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}
