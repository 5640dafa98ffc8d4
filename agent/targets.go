// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/preflight"
)

// otherIndex is where the figures of all ports beyond the budget are added up.
const otherIndex = bpf.MaxPorts - 1

// sums are figures of which each open socket has its part.
type sums struct {
	overflows    uint64
	rwnd, sndbuf uint64 // ticks for which connections were held back
}

// target is one watched port of one network namespace.
type target struct {
	preflight.Listener
	index   int               // in the kernel's maps, as long as it is watched
	process preflight.Process // the owner, as it was when it was found
	engine  string
	model   string    // what the engine serves; "" where its command line does not say
	pids    []int     // whose threads are watched: the holders and their engine's family
	gone    bool      // it no longer listens
	since   time.Time // gone
	most    sums      // as they were told: they do not go back
	marked  bool
	inside  int   // a process that lives in its network namespace; 0: none is known
	blind   error // why its sockets cannot be marked; nil: they can
}

// owner is the process that the report names, 0 where none is known.
func (t *target) owner() int {
	if len(t.pids) > 0 {
		return t.pids[0]
	}
	return 0
}

// settle finds a process through which the target's namespace can be entered: not
// always one that holds the socket, for a descriptor may have been handed over.
func (t *target) settle(procs []preflight.Process) {
	known := false // a process that holds the socket
	for _, p := range procs {
		if p.PID == t.owner() {
			t.process = p
		}
		if p.NetNS != t.NetNS || p.NetNS == 0 {
			continue
		}
		if !known && slices.Contains(t.pids, p.PID) {
			t.inside, known = p.PID, true
		}
		if t.inside == 0 {
			t.inside = p.PID
		}
	}
	if t.inside == 0 {
		t.inside = t.owner()
	}
}

type targets struct {
	list   []*target             // by index
	beyond map[bpf.WatchKey]bool // ports beyond the budget, watched as one
	fold   map[bpf.WatchKey]int  // those of them that are new, and a process in their namespace
	folded uint64                // how many there were in all
	gone   []bpf.WatchKey        // no longer to be watched
}

// key is what the kernel's map knows the target by.
func (t *target) key() bpf.WatchKey { return bpf.WatchKey{NetNS: uint32(t.NetNS), Port: t.Port} }

// at returns the target with the index, or nil.
func (t *targets) at(index int) *target {
	for _, x := range t.list {
		if x.index == index {
			return x
		}
	}
	return nil
}

// free returns the lowest index that no target has.
func (t *targets) free() (int, bool) {
	for i := range otherIndex {
		if t.at(i) == nil {
			return i, true
		}
	}
	return 0, false
}

// findTargets looks for what w names. Everything named must be there.
func findTargets(h preflight.Host, w Watch) (*targets, error) {
	t := &targets{beyond: map[bpf.WatchKey]bool{}, fold: map[bpf.WatchKey]int{}}
	found, err := resolve(h, w)
	if err != nil {
		return nil, err
	}
	t.merge(found)
	if w.AllowNone {
		return t, nil
	}
	return t, check(found, w)
}

// check says what of w is not among the listeners that were found.
func check(found []*target, w Watch) error {
	for _, p := range w.Ports {
		if !slices.ContainsFunc(found, func(x *target) bool { return x.Port == p }) {
			return fmt.Errorf("%w: nothing listens on TCP port %d; `ss -ltn` lists what does", ErrNotThere, p)
		}
	}
	for _, pid := range w.PIDs {
		if !slices.ContainsFunc(found, func(x *target) bool { return slices.Contains(x.PIDs, pid) }) {
			return fmt.Errorf("%w: process %d listens on no TCP port; name the process that accepts the requests, or use --port", ErrNotThere, pid)
		}
	}
	switch {
	case len(found) > 0:
		return nil
	case w.empty():
		return fmt.Errorf("%w: no serving engine that listens was found on this node; name what to watch with --port, --pid or --cgroup", ErrNotThere)
	}
	return fmt.Errorf("%w: nothing in cgroup %s listens on a TCP port", ErrNotThere, strings.Join(w.Cgroups, ", "))
}

// merge adds new listeners, renews what is known of the others, and returns those
// that are new. Those beyond the budget are watched as one target, other.
func (t *targets) merge(found []*target) (fresh []*target) {
	for _, old := range t.list {
		was := old.gone
		old.gone = !slices.ContainsFunc(found, old.same) && !old.other()
		if old.gone && !was {
			old.since = time.Now()
		}
	}
	beyond := map[bpf.WatchKey]bool{}
	for _, f := range found {
		if i := slices.IndexFunc(t.list, f.same); i >= 0 {
			renewed := f.Cookie == t.list[i].Cookie
			f.marked = t.list[i].marked && renewed
			f.index, f.blind = t.list[i].index, t.list[i].blind
			f.most = t.list[i].most
			*t.list[i] = *f
			continue
		}
		if index, ok := t.free(); ok && !t.beyond[f.key()] {
			f.index = index
			t.list = append(t.list, f)
			fresh = append(fresh, f)
			continue
		}
		beyond[f.key()] = true
		if !t.beyond[f.key()] {
			t.folded++
			t.fold[f.key()] = f.inside
		}
	}
	for k := range t.beyond {
		if !beyond[k] {
			t.gone = append(t.gone, k)
		}
	}
	t.beyond = beyond
	if len(beyond) > 0 && t.at(otherIndex) == nil {
		t.list = append(t.list, &target{index: otherIndex, marked: true})
	}
	return fresh
}

// other says that t stands for all ports beyond the budget.
func (t *target) other() bool { return t.index == otherIndex }

// restartTime is how long a port's place is kept for a server that comes back: its
// figures go on then, and none of its connections is missed.
const restartTime = 5 * time.Minute

// retire removes the targets that no longer listen and have no connection left, and
// returns them: their indices may be used again. They are kept for a while where
// there is room.
func (t *targets) retire(now time.Time, connections func(index int) int) (retired []*target) {
	tight := len(t.list) > bpf.MaxPorts*3/4
	t.list = slices.DeleteFunc(t.list, func(x *target) bool {
		if !x.gone || connections(x.index) > 0 || !tight && now.Sub(x.since) < restartTime {
			return false
		}
		retired = append(retired, x)
		t.gone = append(t.gone, x.key())
		return true
	})
	return retired
}

func (t *target) same(other *target) bool { return t.Port == other.Port && t.NetNS == other.NetNS }

// resolve lists the listeners that w means now.
func resolve(h preflight.Host, w Watch) ([]*target, error) {
	procs, err := h.Processes()
	if !incomplete(err) {
		return nil, err
	}
	engines, err := h.Engines(procs)
	if !incomplete(err) {
		return nil, err
	}
	listeners, err := h.Listeners(nil)
	if !incomplete(err) {
		return nil, err
	}
	pids, err := wanted(h, w, engines)
	if err != nil {
		return nil, err
	}
	held := preflight.HeldBy(listeners, pids)
	for _, l := range listeners {
		if slices.Contains(w.Ports, l.Port) {
			held = append(held, l)
		}
	}
	var out []*target
	for _, l := range held {
		out = add(out, l, engines)
	}
	for _, t := range out {
		t.settle(procs)
	}
	slices.SortFunc(out, func(a, b *target) int { return cmp.Compare(a.Port, b.Port) })
	return out, nil
}

// add joins the sockets of one port (several addresses, SO_REUSEPORT) to one target.
func add(list []*target, l preflight.Listener, engines []preflight.Engine) []*target {
	for _, t := range list {
		if t.Port == l.Port && t.NetNS == l.NetNS {
			if t.Inode != l.Inode {
				t.Addrs = union(t.Addrs, l.Addrs)
				t.PIDs = union(t.PIDs, l.PIDs)
				t.pids = union(t.pids, l.PIDs)
				t.Depth += l.Depth
				t.Limit += l.Limit
			}
			return list
		}
	}
	t := &target{Listener: l, pids: slices.Clone(l.PIDs)}
	for _, e := range engines {
		if slices.ContainsFunc(e.PIDs, func(pid int) bool { return slices.Contains(l.PIDs, pid) }) {
			t.engine, t.model = e.Name, e.Model
			t.pids = union(t.pids, e.PIDs)
		}
	}
	return append(list, t)
}

// wanted lists the processes that w means.
func wanted(h preflight.Host, w Watch, engines []preflight.Engine) ([]int, error) {
	pids := slices.Clone(w.PIDs)
	for _, c := range w.Cgroups {
		in, err := h.PIDsOfCgroup(c)
		if err != nil {
			return nil, fmt.Errorf("%w: cgroup %s: %w", ErrNotThere, c, err)
		}
		pids = append(pids, in...)
	}
	if w.empty() || w.Engines {
		for _, e := range engines {
			pids = append(pids, e.PIDs...)
		}
	}
	return pids, nil
}

func union[T comparable](a, b []T) []T {
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}
