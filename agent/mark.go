// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/preflight"
)

// roleKey is what threads are counted under: the first watched port of their
// process, and the role of their name.
type roleKey struct {
	port int
	name string
}

// marks remembers which threads are marked and which role has which index.
type marks struct {
	tids  map[int]bool
	roles map[roleKey]int
	names preflight.RoleTable
}

// mark looks for listeners and threads that are new and marks them.
func (s *Session) mark() error {
	s.marking.Lock() // one look at a time
	defer s.marking.Unlock()
	s.seen.mu.Lock()
	watch := s.opts.Watch
	s.seen.mu.Unlock()
	found, err := resolve(s.opts.Host, watch)
	if err != nil {
		return err
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	clear(s.seen.told) // what is known of the targets may have changed
	for _, t := range s.targets.merge(found) {
		s.base.read(s, t)
	}
	return s.markFound()
}

// markFound marks what of the known targets is not marked yet. The lock is held, or
// no loop runs yet.
func (s *Session) markFound() error {
	if s.sockets == nil {
		return nil
	}
	if s.threads != nil {
		if err := s.markThreads(); err != nil {
			return err
		}
	}
	return s.markSockets()
}

func (s *Session) markSockets() error {
	fresh := map[uint64]int{} // namespaces with a new listener, and how to enter them
	for _, k := range s.targets.gone {
		if err := s.maps.Unwatch(k); err != nil {
			return err
		}
	}
	s.targets.gone = nil
	for _, t := range s.targets.list {
		if t.marked || t.gone {
			continue
		}
		key := t.key()
		if err := s.maps.Watch(key, t.index); err != nil {
			return err
		}
		if s.opts.Watch.BothEnds {
			key.Remote = true
			if err := s.maps.Watch(key, t.index); err != nil {
				return err
			}
		}
		t.marked = true
		fresh[t.NetNS] = t.inside
	}
	for key, pid := range s.targets.fold {
		delete(s.targets.fold, key)
		if err := s.maps.Watch(key, otherIndex); err != nil {
			s.seen.lost["ports/map_full"]++
			continue
		}
		fresh[uint64(key.NetNS)] = pid
	}
	for ns, pid := range fresh {
		err := s.inNetNS(pid, func() error { return s.sockets.Mark(s.seen.socket) })
		blind := blindTo(ns, pid, err)
		for _, t := range s.targets.list {
			if t.NetNS == ns {
				t.blind = blind
			}
		}
		if err != nil && blind == nil {
			return fmt.Errorf("marking the sockets of network namespace %d: %w", ns, err)
		}
	}
	return nil
}

// inNetNS enters the namespace of pid; where no process is known it must be ours.
func (s *Session) inNetNS(pid int, f func() error) error {
	if pid == 0 {
		return f()
	}
	err := s.opts.Host.InNetNS(pid, f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the process went away meanwhile
	}
	return err
}

func (s *Session) markThreads() error {
	m := &s.seen.marks
	fresh := map[int]bpf.ThreadName{}
	alive := map[int]bool{}
	for _, t := range s.targets.list {
		for _, pid := range t.pids {
			threads, err := s.opts.Host.Threads(pid)
			if !incomplete(err) {
				continue // it went away meanwhile
			}
			for _, th := range threads {
				if alive[th.TID] {
					continue // its process holds another watched port too
				}
				alive[th.TID] = true
				if m.tids[th.TID] {
					continue
				}
				fresh[th.TID] = bpf.ThreadName{Role: m.role(t.index, m.names.Of(th.Comm)), Port: t.index}
			}
		}
	}
	m.tids = alive
	if len(fresh) == 0 {
		return nil
	}
	beyond, err := s.maps.NameThreads(fresh)
	if beyond > 0 {
		s.seen.lost["threads/map_full"] += uint64(beyond)
	}
	if err != nil {
		return err
	}
	return errors.Join(s.threads.Mark(), s.maps.ForgetThreads(fresh))
}

// role gives a role its index; the last index takes those beyond the budget.
func (m *marks) role(port int, name string) int {
	key := roleKey{port, name}
	if i, ok := m.roles[key]; ok {
		return i
	}
	used := map[int]bool{}
	for _, i := range m.roles {
		used[i] = true
	}
	for i := range bpf.MaxRoles - 1 {
		if !used[i] {
			m.roles[key] = i
			return i
		}
	}
	m.roles[roleKey{-1, preflight.RoleOther}] = bpf.MaxRoles - 1
	return bpf.MaxRoles - 1
}

// retire gives up the targets that are gone for good, with their places in the
// kernel's maps. The lock is held.
func (s *Session) retire(connections func(index int) int) error {
	for _, t := range s.targets.retire(time.Now(), connections) {
		if err := s.maps.ForgetPort(t.index); err != nil {
			return err
		}
		delete(s.seen.told, t.index)
		for key, role := range s.seen.marks.roles {
			if key.port == t.index {
				if err := s.maps.ForgetRole(role); err != nil {
					return err
				}
				delete(s.seen.marks.roles, key)
			}
		}
		s.base.forget(t, s.targets)
	}
	return nil
}
