// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/velo-agent/velo-agent/preflight"
)

// around reads what is around the ports once a reading: several ports share a process
// or a network namespace.
type around struct {
	host      preflight.Host
	names     *preflight.RoleTable
	byNS      map[uint64]*namespace
	rolesOf   map[int][]preflight.Role
	throttles map[int][]preflight.CPUControl
}

type namespace struct {
	counters  preflight.NetCounters
	counted   bool
	somaxconn uint64
}

func (s *Session) around() *around {
	return &around{
		s.opts.Host, &s.seen.marks.names,
		map[uint64]*namespace{},
		map[int][]preflight.Role{},
		map[int][]preflight.CPUControl{},
	}
}

func (a *around) namespace(t *target) *namespace {
	n := a.byNS[t.NetNS]
	if n == nil {
		n = &namespace{}
		a.byNS[t.NetNS] = n
		c, err := a.host.NetCounters(t.inside)
		n.counters, n.counted = c, incomplete(err)
		if limit, err := a.host.Somaxconn(t.inside); err == nil {
			n.somaxconn = uint64(limit)
		}
	}
	return n
}

func (a *around) net(t *target) (preflight.NetCounters, bool) {
	n := a.namespace(t)
	return n.counters, n.counted
}

// somaxconn is 0 where it is not known.
func (a *around) somaxconn(t *target) uint64 { return a.namespace(t).somaxconn }

func (a *around) roles(pid int) []preflight.Role {
	roles, ok := a.rolesOf[pid]
	if !ok {
		var err error
		if roles, err = a.host.Roles(pid, a.names); !incomplete(err) {
			roles = nil
		}
		a.rolesOf[pid] = roles
	}
	return roles
}

func (a *around) levels(pid int) []preflight.CPUControl {
	levels, ok := a.throttles[pid]
	if !ok {
		levels, _ = a.host.CgroupCPU(pid) // none where it cannot be read
		a.throttles[pid] = levels
	}
	return levels
}
