// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// origin is who told of a peer; a later one counts for more.
type origin uint8

const (
	nobody origin = iota // it is only named, by a Link
	byHello
	byDiscovery
	byApplication
)

// peers is the table of them.
type peers struct {
	m *Messenger

	mu      sync.RWMutex
	known   map[wire.WorkerID]*peer
	reached map[string]int // how many, by transport key
}

func (t *peers) init(m *Messenger) {
	t.m = m
	t.known = map[wire.WorkerID]*peer{}
	t.reached = map[string]int{}
}

func (t *peers) get(w wire.WorkerID) *peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.known[w]
}

// ensure is get that makes the entry.
func (t *peers) ensure(w wire.WorkerID) (*peer, error) {
	if p := t.get(w); p != nil {
		return p, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.known[w]; p != nil {
		return p, nil
	}
	if len(t.known) >= t.m.o.Peers && !t.forgetOne() {
		return nil, fmt.Errorf("registering a peer: %w: %d are known", ErrTooMany, len(t.known))
	}
	p := &peer{m: t.m, worker: w}
	t.known[w] = p
	return p, nil
}

// forgetOne forgets a peer that the application did not tell of and that has no
// connection: it can say hello, or be discovered, again. It looks at some; map order is random.
func (t *peers) forgetOne() bool {
	looks := 64
	for w, p := range t.known {
		if looks--; looks < 0 {
			return false
		}
		p.mu.Lock()
		gone := p.told < byApplication && p.line == nil && p.dialing == nil && p.link == nil
		entries := p.entries
		if gone {
			p.entries = nil
		}
		p.mu.Unlock()
		if gone {
			delete(t.known, w)
			t.count(entries, nil)
			return true
		}
	}
	return false
}

// count keeps the gauges of registered peers; the lock is held.
func (t *peers) count(before, after map[string][]byte) {
	for _, r := range t.m.routes {
		key := r.Key()
		if before[key] != nil {
			t.reached[key]--
		}
		if after[key] != nil {
			t.reached[key]++
		}
		r.SetPeers(t.reached[key])
	}
}

// lines are the outgoing connections.
func (t *peers) lines() []*line {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*line
	for _, p := range t.known {
		p.mu.Lock()
		if p.line != nil {
			list = append(list, p.line)
		}
		p.mu.Unlock()
	}
	return list
}

// Register tells of a peer. The application's word counts for more than a peer's _hello.
// Errors wrap ErrNoRoute, ErrTooMany or wire.ErrAddress.
func (m *Messenger) Register(p wire.PeerInfo) error { return m.enroll(m.ctx, p, byApplication, false) }

// Peer is what is known of a peer's address.
func (m *Messenger) Peer(w wire.WorkerID) (wire.PeerInfo, bool) {
	p := m.peers.get(w)
	if p == nil {
		return wire.PeerInfo{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info, p.told != nobody
}

// enroll registers a peer, or refuses to move one. proved: it came over a connection
// whose certificate is bound to the instance.
func (m *Messenger) enroll(ctx context.Context, info wire.PeerInfo, by origin, proved bool) error {
	entries, err := m.routable(info)
	if err != nil {
		return fmt.Errorf("registering the peer %s: %w", info.Instance, err)
	}
	p, err := m.peers.ensure(info.Instance.Worker())
	if err != nil {
		return err
	}
	p.mu.Lock()
	told, old := p.told, p.entries
	p.mu.Unlock()
	switch {
	case by == byApplication || told == nobody:
	case m.sameRoutes(old, entries):
		return nil // what is there may say more: a _hello has the messenger's entries only
	case proved:
	case by == byDiscovery:
		return nil
	case m.answers(ctx, old):
		m.log.Warn("a peer says hello from another address than the one where it answers; refused", "peer", info.Instance.String())
		return fmt.Errorf("registering the peer %s: %w, where it answers", info.Instance, ErrTaken)
	}
	m.peers.mu.Lock()
	defer m.peers.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if by < byApplication && p.told != told {
		return nil // somebody else was faster
	}
	m.peers.count(p.entries, entries)
	if p.line != nil && !m.sameRoutes(p.entries, entries) {
		p.line.conn.Close() // it leads to where the peer was
		p.line = nil
	}
	p.info, p.entries, p.told = info, entries, max(by, told)
	return nil
}

// routable are the entries of an address, of which one at least must be of use here.
func (m *Messenger) routable(info wire.PeerInfo) (map[string][]byte, error) {
	if info.Instance.Worker() == 0 {
		return nil, fmt.Errorf("%w: no instance has it", ErrUnknownPeer)
	}
	entries, err := info.Address.Entries()
	if err != nil {
		return nil, err
	}
	var bad error
	for _, r := range m.routes {
		entry := entries[r.Key()]
		if entry == nil {
			continue
		}
		if _, err := places(r, entry, nil); err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		return entries, nil
	}
	if bad != nil {
		return nil, bad
	}
	return nil, fmt.Errorf("%w: it has none of ours", ErrNoRoute)
}

func (m *Messenger) sameRoutes(a, b map[string][]byte) bool {
	for _, r := range m.routes {
		if !bytes.Equal(a[r.Key()], b[r.Key()]) {
			return false
		}
	}
	return true
}

// answers says whether something accepts connections at one of the entries.
func (m *Messenger) answers(ctx context.Context, entries map[string][]byte) bool {
	return m.eachPlace(entries, func(r *transport.Transport, place string) error {
		return r.Ping(ctx, place)
	}) == nil
}

// eachPlace tries where a peer may be until f is content with one.
func (m *Messenger) eachPlace(entries map[string][]byte, f func(r *transport.Transport, place string) error) error {
	own, err := interfaces()
	if err != nil {
		m.log.Debug("own interfaces not known; peers' addresses are taken as they come", "err", err)
	}
	var failed error
	for _, r := range m.routes {
		entry := entries[r.Key()]
		if entry == nil {
			continue
		}
		list, err := places(r, entry, own)
		failed = errors.Join(failed, err)
		for _, place := range list {
			if err := f(r, place); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			return nil
		}
	}
	if failed == nil {
		failed = ErrNoRoute
	}
	return failed
}

// maxPlaces bounds how many addresses of one peer are tried.
const maxPlaces = 4

// places are what to dial for an entry, best first.
func places(r *transport.Transport, entry []byte, own []wire.Endpoint) ([]string, error) {
	if r.Network() == "unix" {
		path, err := wire.ParseUnixEntry(entry)
		return []string{path}, err
	}
	list, err := wire.ParseEndpoints(entry)
	if err != nil {
		return nil, err
	}
	sorted := nearest(list, own)
	return sorted[:min(len(sorted), maxPlaces)], nil
}

// find is the peer that a message goes to; discovery is asked for one that is not known.
func (m *Messenger) find(ctx context.Context, w wire.WorkerID) (*peer, error) {
	if p := m.peers.get(w); p != nil && p.known() {
		m.m.resolved("direct", "success")
		return p, nil
	}
	if m.o.Discovery == nil {
		return nil, fmt.Errorf("looking for worker %d: %w: register it, or let it say hello", uint64(w), ErrUnknownPeer)
	}
	info, err := m.o.Discovery.ByWorker(ctx, w)
	switch {
	case err == nil && info.Instance.Worker() != w:
		err = fmt.Errorf("discovery answers with worker %d", uint64(info.Instance.Worker()))
	case err == nil:
		err = m.enroll(ctx, info, byDiscovery, false)
	case errors.Is(err, discovery.ErrNotFound):
		err = fmt.Errorf("%w: %w", ErrUnknownPeer, err)
	}
	if err != nil {
		m.m.resolved("discovery", "error")
		return nil, fmt.Errorf("looking for worker %d: %w", uint64(w), err)
	}
	m.m.resolved("discovery", "success")
	return m.peers.ensure(w)
}

// Healthy says whether the peer accepts a connection of its own, beside those that carry
// data: it connects and closes at once.
func (m *Messenger) Healthy(ctx context.Context, to wire.WorkerID) error {
	p, err := m.find(ctx, to)
	if err != nil {
		return err
	}
	p.mu.Lock()
	entries := p.entries
	p.mu.Unlock()
	return m.eachPlace(entries, func(r *transport.Transport, place string) error { return r.Ping(ctx, place) })
}
