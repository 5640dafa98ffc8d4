// SPDX-License-Identifier: Apache-2.0

package side

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/velo-agent/velo-agent/tests/rig/carrier"
	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// walk hands in all streams of a peer with one goroutine, one record each in turn. Where
// the carrier can say that a stream takes no more, the walk goes on with the others.
type walk struct {
	*producer
	streams []*stream
	record  []byte
	open    int // streams that were not closed yet

	feeder carrier.Feeder // nil: the carrier only waits
	ready  []carrier.Trier
	byTry  map[carrier.Trier]*stream
}

func newWalk(p *producer, streams []*stream) *walk {
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.number, b.number) })
	w := &walk{producer: p, streams: streams, record: make([]byte, p.spec.Size), open: len(streams)}
	feeds, ok := p.carried.(carrier.Feeds)
	if ok {
		w.feeder, w.byTry = feeds.Feeder(), make(map[carrier.Trier]*stream, len(streams))
	}
	for _, s := range streams {
		s.due, s.try = s.next, s.sender.Send
		if ok {
			t := s.sender.(carrier.Trier)
			s.try, w.byTry[t] = t.TrySend, s
			w.feeder.Add(t)
		}
	}
	return w
}

func (w *walk) run() error {
	if w.spec.Paced {
		return w.paced()
	}
	return w.backToBack()
}

// paced sends, once a tick, what is due: the streams' turns are spread evenly.
func (w *walk) paced() error {
	t := time.NewTicker(tick)
	defer t.Stop()
	turns := (w.spec.Records - 1) * len(w.streams)
	rate := float64(len(w.streams)) / w.period().Seconds()
	for turn, at := 0, 0; w.open > 0; {
		<-t.C
		unblocked, err := w.unblocked(false)
		if err != nil {
			return err
		}
		for _, s := range unblocked {
			if err := w.feed(w.byTry[s]); err != nil {
				return err
			}
		}
		due := min(turns, int(time.Since(w.start).Seconds()*rate))
		for ; turn < due; turn++ {
			s := w.streams[at]
			if at++; at == len(w.streams) {
				at = 0
			}
			if s.due++; s.blocked {
				continue
			}
			if err := w.feed(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// backToBack sends as fast as the carrier takes it.
func (w *walk) backToBack() error {
	active := slices.Clone(w.streams)
	for w.open > 0 {
		unblocked, err := w.unblocked(len(active) == 0)
		if err != nil {
			return err
		}
		for _, s := range unblocked {
			if s := w.byTry[s]; s.blocked {
				s.blocked = false
				active = append(active, s)
			}
		}
		keep := active[:0]
		for _, s := range active {
			s.due = s.next + 1
			if err := w.feed(s); err != nil {
				return err
			}
			if !s.blocked && s.next < uint64(w.spec.Records) {
				keep = append(keep, s)
			}
		}
		active = keep
	}
	return nil
}

// unblocked returns the streams that take more again.
func (w *walk) unblocked(wait bool) (_ []carrier.Trier, err error) {
	if w.feeder == nil {
		return nil, nil
	}
	w.ready, err = w.feeder.Next(w.ready[:0], wait)
	return w.ready, err
}

// feed sends what is due of a stream, as far as it is taken, and closes it at its end.
func (w *walk) feed(s *stream) error {
	if s.next == uint64(w.spec.Records) { // told once more after its end
		return nil
	}
	for s.blocked = false; s.next < s.due; s.next++ {
		load.Fill(w.record, s.number, s.next, w.spec.Paced)
		if err := s.try(w.record); err != nil {
			if errors.Is(err, carrier.ErrWouldBlock) {
				s.blocked = true
				return nil
			}
			return fmt.Errorf("stream %d, record %d: %w", s.number, s.next, err)
		}
	}
	if s.next < uint64(w.spec.Records) {
		return nil
	}
	w.open--
	return s.sender.Close()
}
