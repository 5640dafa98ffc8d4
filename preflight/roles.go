// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"sort"
	"strings"
	"sync"
)

const (
	// MaxRoles bounds the roles of a table, RoleOther included.
	MaxRoles = 32
	// RoleOther takes the threads for which no role is left, and the nameless.
	RoleOther = "other"
)

const separators = "-_.:/#[](){} "

// RoleOf returns the role that a thread's comm stands for: the comm without its
// digits and without the separators that these leave doubled or at an end, so
// that the threads of a pool are one ("pool-1-thread-12" is "pool-thread").
func RoleOf(comm string) string {
	var b strings.Builder
	gap := false // digits were dropped since the last character written
	for _, r := range clean(comm) {
		if r >= '0' && r <= '9' {
			gap = true
			continue
		}
		if gap && strings.ContainsRune(separators, r) && strings.ContainsAny(tail(b.String()), separators) {
			continue
		}
		gap = false
		b.WriteRune(r)
	}
	role := strings.Trim(b.String(), separators)
	if role == "" {
		return RoleOther
	}
	return role
}

func tail(s string) string {
	if s == "" {
		return " "
	}
	return s[len(s)-1:]
}

// RoleTable keeps roles to MaxRoles, first come, first kept, so that a role once
// given stays. The zero value is ready; it may be used from several goroutines.
type RoleTable struct {
	mu     sync.Mutex
	known  map[string]bool
	folded uint64
}

// Of returns the role of a comm, or RoleOther where the table is full.
func (t *RoleTable) Of(comm string) string {
	role := RoleOf(comm)
	t.mu.Lock()
	defer t.mu.Unlock()
	if role == RoleOther || t.known[role] {
		return role
	}
	if len(t.known) >= MaxRoles-1 {
		t.folded++
		return RoleOther
	}
	if t.known == nil {
		t.known = map[string]bool{}
	}
	t.known[role] = true
	return role
}

// Folded returns how often a comm found the table full.
func (t *RoleTable) Folded() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.folded
}

// Role is the threads of a process that bear the same role, and their sum.
type Role struct {
	Name    string
	Threads []Thread
	Counted int // threads whose scheduling times are in Sched
	Sched   SchedStat
}

// Roles groups the threads of a process by role and adds up their scheduling
// times, by name. t may be nil: the roles are then those of this call. Where no
// thread offers times, Counted is 0. An [Incomplete] error comes with valid roles.
func (h Host) Roles(pid int, t *RoleTable) ([]Role, error) {
	doing := fmt.Sprintf("reading the thread roles of process %d", pid)
	if t == nil {
		t = new(RoleTable)
	}
	var s skips
	threads, err := h.Threads(pid)
	if threads == nil && err != nil {
		return nil, err
	}
	s.add(err)
	byName := map[string]*Role{}
	for _, th := range threads {
		name := t.Of(th.Comm)
		r := byName[name]
		if r == nil {
			r = &Role{Name: name}
			byName[name] = r
		}
		r.Threads = append(r.Threads, th)
		st, err := h.SchedStat(pid, th.TID)
		if err != nil {
			s.add(err)
			continue
		}
		r.Counted++
		r.Sched.Run += st.Run
		r.Sched.Wait += st.Wait
		r.Sched.Slices += st.Slices
	}
	out := make([]Role, 0, len(byName))
	for _, r := range byName {
		out = append(out, *r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, s.err(doing)
}
