// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"net/netip"
	"sync"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// claims are the workers that accepted connections speak for now, and where those come
// from: nobody elsewhere may speak for a worker while it is connected.
type claims struct {
	mu   sync.Mutex
	held map[wire.WorkerID]*claim
}

type claim struct {
	network string
	host    netip.Addr
	lines   int
}

func (s *claims) take(w wire.WorkerID, network string, host netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[wire.WorkerID]*claim{}
	}
	c := s.held[w]
	if c == nil {
		c = &claim{network: network, host: host}
		s.held[w] = c
	}
	if c.network != network || c.host != host {
		return false
	}
	c.lines++
	return true
}

func (s *claims) drop(w wire.WorkerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.held[w]
	if c.lines--; c.lines == 0 {
		delete(s.held, w)
	}
}

// speaks decides who speaks on a connection, by its first message; one that then names
// another worker, or one that it may not name, is closed.
func (m *Messenger) speaks(c *transport.Conn, l *line, from wire.WorkerID) bool {
	may, proved := c.MaySpeakFor(from)
	why := ""
	switch {
	case l.from != 0:
		why = "its messages name several workers"
	case from == 0 || from == m.worker:
		why = "it names no other worker"
	case !may:
		why = "its certificate is not bound to that worker"
	case !proved && !m.claims.take(from, c.Transport().Network(), c.Host()):
		why = "that worker is connected from elsewhere"
	default:
		l.from, l.claimed = from, !proved
		return true
	}
	c.Transport().Reject(transport.RouteFailed)
	m.log.Warn("a connection speaks for a worker that it is not; closed",
		"remote", c.Remote().String(), "worker", uint64(from), "why", why)
	c.Close()
	return false
}
