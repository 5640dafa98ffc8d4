// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"slices"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// Most ports of a node rest most of the time. What was told of them is not read,
// sent, taken apart and told again every few seconds.

// restFor is how long what moves without a packet is taken to be as it was where no
// packet moved: the CPU time of a port's threads, its namespace's counters, the time
// for which its open connections are held back.
const restFor = 30 * time.Second

// told is what the last reading held of a target.
type told struct {
	mark   uint64 // of its figures
	open   bpf.OpenSockets
	around time.Time // when that was read
}

// news is what a reading found of a target.
type news struct {
	figures *bpf.PortFigures // nil: there are none, or they are as told
	mark    uint64
	known   bool // the figures are as they were told
	around  bool // what is around it is read anew
}

// news reads the figures of each target; where it may be lazy, those that moved. The
// lock is held.
func (s *Session) news(lazy bool) ([]news, error) {
	list := make([]news, len(s.targets.list))
	for i, t := range s.targets.list {
		n := &list[i]
		was, known := s.seen.told[t.index]
		n.known = known && lazy
		n.around = !n.known || time.Since(was.around) >= restFor
		if err := s.figures(t, n, was.mark); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// figures reads the target's figures, unless they are known and as they were at mark.
func (s *Session) figures(t *target, n *news, mark uint64) (err error) {
	if s.missing != nil || t.blind != nil {
		return nil
	}
	if !n.known {
		mark = 0
	}
	n.figures, n.mark, err = s.maps.PortSince(t.index, mark)
	n.known = n.known && n.figures == nil
	return err
}

// tell reports whether the target rests. Where it does not its figures are there, and
// count as told. The lock is held.
func (s *Session) tell(t *target, n *news, now bpf.OpenSockets) (resting bool, err error) {
	was := s.seen.told[t.index]
	resting = n.known && was.open == now
	if n.known && !resting {
		n.known, n.around = false, true
		if err := s.figures(t, n, 0); err != nil {
			return false, err
		}
	}
	was.mark, was.open = n.mark, now
	if n.around || !resting {
		was.around = time.Now()
	}
	s.seen.told[t.index] = was
	return resting, nil
}

// walked is what the last walk over the sockets found.
type walked struct {
	open map[int]bpf.OpenSockets // by target; nil: it failed
	at   time.Time
}

// survey returns what the sockets say: as before where nothing moved and nothing waits.
func (s *Session) survey(list []news) map[int]bpf.OpenSockets {
	if s.sockets == nil {
		return nil
	}
	w := &s.seen.walked
	still := time.Since(w.at) < restFor && !slices.ContainsFunc(list, func(n news) bool { return !n.known })
	for _, o := range w.open {
		still = still && o.AcceptDepth == 0
	}
	if !still {
		*w = walked{open: s.walk()}
		if w.open != nil {
			w.at = time.Now()
		}
	}
	return w.open
}

// measured is a reading for who has the one before it.
type measured struct {
	*diagnosis.Measured
	Rest []rest `json:"rest,omitempty"` // what is missing in Ports, in the order of At
}

// rest is a port at which nothing happened since the reading before.
type rest struct {
	At     int             `json:"at"` // its place in Ports
	Port   uint16          `json:"port"`
	NetNS  uint64          `json:"netns"`
	Around *diagnosis.Port `json:"around,omitempty"` // what is around it, where that was read
}

var errRest = errors.New("the reading refers to one before it that is not known")

// fill puts the ports at rest in, from the reading before.
func (m *measured) fill(before *diagnosis.Measured) error {
	if m.Measured == nil {
		return errors.New("the reading is empty")
	}
	for _, r := range m.Rest {
		if before == nil || r.At < 0 || r.At > len(m.Ports) {
			return errRest
		}
		was := before.Find(&diagnosis.Port{Port: r.Port, NetNS: r.NetNS}, r.At)
		if was == nil {
			return errRest
		}
		p := *was
		if now := r.Around; now != nil {
			p.Sched = now.Sched
			p.Loss.NodeListenOverflows, p.Loss.NodeListenDrops = now.Loss.NodeListenOverflows, now.Loss.NodeListenDrops
			p.Loss.NodeUDPRcvbufErrors = now.Loss.NodeUDPRcvbufErrors
		}
		m.Ports = slices.Insert(m.Ports, r.At, p)
	}
	return nil
}
