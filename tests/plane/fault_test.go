// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

const (
	epochDeaths  = "velo_streaming_mux_epoch_deaths_total"
	watchdog     = "velo_streaming_heartbeat_watchdog_firings_total"
	dropped      = "velo_streaming_mux_records_dropped_total"
	gaps         = "velo_streaming_mux_batch_seq_gaps_total"
	overspent    = "velo_streaming_mux_hold_overflow_total"
	generations  = "velo_streaming_mux_generation_mismatch_total"
	malformed    = "velo_agent_plane_malformed_batches_total"
	rejections   = "velo_transport_rejections_total"
	faultStreams = 8192
)

// rose fails the test unless a counter of a site has risen by that much at least.
func rose(t *testing.T, s *site, by int, family string, labels ...string) {
	t.Helper()
	if n := s.shows(t, family, labels...); n < float64(by) {
		t.Errorf("%s %v is %v, want %d at least", family, labels, n, by)
	} else {
		t.Logf("%s %v: %v", family, labels, n)
	}
}

// only fails the test if a stream ended otherwise.
func only(t *testing.T, side string, got ends, want ...string) {
	t.Helper()
	t.Logf("%s: %v", side, got)
	for how := range got {
		if !slices.Contains(want, how) {
			t.Errorf("of the %s, %d saw %q; want %q alone", side, got[how], how, want)
		}
	}
}

// TestFaults breaks something under many live streams.
func TestFaults(t *testing.T) {
	n := pick(2048, faultStreams)
	for _, f := range []struct {
		name string
		o    plane.Options
		do   func(t *testing.T, s *scene, c *crowd)
	}{
		{name: "reset within a batch", do: cut(step{reset: true})},
		{name: "end within a batch", do: func(t *testing.T, s *scene, c *crowd) {
			cut(step{shut: true})(t, s, c)
			rose(t, s.consumer, 1, rejections, "reason=decode_error")
		}},
		{name: "reset of the way back", do: wayBack},
		{name: "half-open", o: plane.Options{Transport: transport.Options{Patience: silence}}, do: halfOpen},
		{name: "new epoch", do: newEpoch},
		{name: "delay", do: func(t *testing.T, s *scene, c *crowd) {
			s.there.do(func(f *passing) []step { return []step{{write: f.raw, wait: 5 * time.Millisecond}} })
			c.more(t, 4*n)
			s.there.pass()
			c.complete(t)
		}},
		{name: "reordered batches", do: reordered},
		{name: "repeated batches", do: repeated},
		{name: "inflated credit", do: inflated},
		{name: "truncated records", do: truncated},
		{name: "unknown version", do: func(t *testing.T, s *scene, c *crowd) {
			<-s.there.once(func(f *passing) []step {
				f.payload[0] = 9
				return []step{{write: f.raw}}
			})
			lostRecords(t, s, c)
			rose(t, s.consumer, 1, malformed)
		}},
		{name: "lost batch", do: func(t *testing.T, s *scene, c *crowd) {
			<-s.there.once(func(*passing) []step { return nil })
			lostRecords(t, s, c)
			rose(t, s.consumer, 1, gaps)
		}},
		{name: "oversized frame", do: func(t *testing.T, s *scene, c *crowd) {
			<-s.there.once(func(f *passing) []step {
				binary.BigEndian.PutUint32(f.raw[7:], wire.MaxFrame)
				return []step{{write: f.raw}}
			})
			lostConnection(t, s, c)
			rose(t, s.consumer, 1, rejections, "reason=decode_error")
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			watch(t)
			s := newScene(t, f.o)
			c := gather(t, s.producer, s.consumer, 0, n, 0)
			c.live(t)
			f.do(t, s, c)
			quiet(t, s.producer, s.consumer)
		})
	}
}

// cut writes half a batch and then does the rest. Nothing is sent afterwards that would
// tell the consumer.
func cut(then step) func(t *testing.T, s *scene, c *crowd) {
	return func(t *testing.T, s *scene, c *crowd) {
		<-s.there.once(func(f *passing) []step { return []step{{write: f.raw[:len(f.raw)/2]}, then} })
		lostConnection(t, s, c)
	}
}

// lostConnection wants every stream lost, on both sides.
func lostConnection(t *testing.T, s *scene, c *crowd) {
	consumers, producers := c.over(t)
	only(t, "consumers", consumers, "dropped")
	only(t, "producers", producers, "peer lost")
	rose(t, s.producer, 1, epochDeaths)
	rose(t, s.consumer, 1, watchdog)
}

// lostRecords wants the streams dropped that miss one, and the others whole.
func lostRecords(t *testing.T, s *scene, c *crowd) {
	eventually(t, func() string {
		if s.consumer.shows(t, watchdog) == 0 {
			return "nobody sees that records are missing"
		}
		return ""
	})
	c.more(t, len(c.list))
	c.finish()
	consumers, producers := c.over(t)
	only(t, "consumers", consumers, "dropped", "complete")
	only(t, "producers", producers, "cancelled", "no error")
	if consumers["dropped"] == 0 || consumers["complete"] == 0 {
		t.Errorf("%v of the streams, want some dropped and some complete", consumers)
	}
}

// wayBack loses the connection that credit returns on, with what is on the way there.
func wayBack(t *testing.T, s *scene, c *crowd) {
	for range 3 {
		s.back.reset()
		c.more(t, len(c.list))
	}
	c.finish()
	consumers, producers := c.over(t)
	only(t, "consumers", consumers, "complete", "dropped")
	only(t, "producers", producers, "no error", "cancelled")
	rose(t, s.consumer, 1, epochDeaths)
}

// halfOpen has the host of each vanish for the other, without a word.
func halfOpen(t *testing.T, s *scene, c *crowd) {
	s.there.refuse()
	s.back.refuse()
	for _, p := range []*proxy{s.there, s.back} {
		resume := p.stall(t)
		defer resume()
	}
	consumers, producers := c.over(t)
	only(t, "consumers", consumers, "dropped")
	only(t, "producers", producers, "peer lost")
	rose(t, s.consumer, len(c.list), watchdog)
}

// newEpoch loses the connection, and the producer begins anew: its old streams end, the new
// ones are not touched by what comes late.
func newEpoch(t *testing.T, s *scene, c *crowd) {
	var mu sync.Mutex
	var old [][]byte
	s.there.do(func(f *passing) []step {
		mu.Lock()
		old = append(old, f.raw)
		mu.Unlock()
		return []step{{write: f.raw}}
	})
	c.more(t, len(c.list))
	s.there.reset()
	<-c.fed // what is opened before the producer sees it is lost too
	again := gather(t, s.producer, s.consumer, 1<<20, len(c.list), 0)
	again.live(t)
	consumers, producers := c.over(t)
	only(t, "consumers", consumers, "dropped")
	only(t, "producers", producers, "peer lost")
	mu.Lock()
	late := old[:min(len(old), 200)]
	mu.Unlock()
	<-s.there.once(func(f *passing) (all []step) {
		for _, b := range late {
			all = append(all, step{write: b})
		}
		return append(all, step{write: f.raw})
	})
	s.there.pass()
	again.more(t, len(c.list))
	again.complete(t)
	rose(t, s.producer, 1, epochDeaths)
	rose(t, s.consumer, len(late), dropped, "reason=stale_epoch")
}

// reordered swaps batches.
func reordered(t *testing.T, s *scene, c *crowd) {
	var kept []byte
	s.there.do(func(f *passing) []step {
		switch {
		case !f.batch():
			return []step{{write: f.raw}}
		case kept == nil:
			kept = f.raw
			return nil
		}
		first := kept
		kept = nil
		return []step{{write: f.raw}, {write: first}}
	})
	c.more(t, 8*len(c.list))
	s.there.do(func(f *passing) []step {
		first := kept
		kept = nil
		return []step{{write: f.raw}, {write: first}}
	})
	c.complete(t)
	rose(t, s.consumer, 1, gaps)
}

// repeated has every batch come twice, those that open streams and end them too, and then
// the batches of streams that are over come once more, when others have their slots.
func repeated(t *testing.T, s *scene, c *crowd) {
	var old [][]byte
	s.there.do(func(f *passing) []step {
		old = append(old, f.raw)
		return []step{{write: f.raw}, {write: f.raw}}
	})
	more := gather(t, s.producer, s.consumer, 1<<20, len(c.list)/2, 0)
	more.live(t)
	c.more(t, len(c.list))
	more.complete(t)
	c.complete(t)
	rose(t, s.consumer, len(c.list), dropped, "reason=duplicate")
	s.there.pass()
	eventually(t, func() string {
		if n := s.producer.Live() + s.consumer.Live(); n > 0 {
			return fmt.Sprintf("%d slots are left", n)
		}
		return ""
	})
	again := gather(t, s.producer, s.consumer, 1<<30, len(c.list), 0)
	again.live(t)
	<-s.there.once(func(f *passing) (all []step) {
		for _, b := range old {
			all = append(all, step{write: b})
		}
		return append(all, step{write: f.raw})
	})
	again.more(t, len(c.list))
	again.complete(t)
	rose(t, s.consumer, len(c.list), generations)
	rose(t, s.consumer, len(c.list), dropped, "reason=generation")
}

// inflated has producers believe in credit that nobody gave.
func inflated(t *testing.T, s *scene, c *crowd) {
	s.back.do(func(f *passing) []step {
		if !f.batch() {
			return []step{{write: f.raw}}
		}
		h, list := f.records(t)
		for i, r := range list {
			if r.Type == wire.CreditUpdate {
				body := slices.Clone(r.Body)
				binary.BigEndian.PutUint32(body, wire.ParseCredit(body)+uint32(i)*5)
				list[i].Body = body
			}
		}
		unknown := wire.Record{Type: wire.CreditUpdate, Slot: wire.MakeSlotID(1<<24-1, 7), Body: []byte{0xff, 0xff, 0xff, 0xff}}
		return []step{{write: f.with(batchOf(h, append(list, unknown)...))}}
	})
	eventually(t, func() string {
		if s.consumer.shows(t, overspent) < float64(len(c.list)/20) {
			return "few see that credit was overspent"
		}
		return ""
	})
	s.back.pass()
	c.finish()
	consumers, producers := c.over(t)
	only(t, "consumers", consumers, "complete", "dropped")
	only(t, "producers", producers, "no error", "cancelled")
	if n := s.consumer.shows(t, overspent); float64(consumers["dropped"]) != n {
		t.Errorf("%d streams were dropped, %v are said to have overspent", consumers["dropped"], n)
	}
}

// truncated has a batch end within a record, in a frame that is whole.
func truncated(t *testing.T, s *scene, c *crowd) {
	<-s.there.once(func(f *passing) []step {
		return []step{{write: f.with(f.payload[:len(f.payload)/2])}}
	})
	lostRecords(t, s, c)
	rose(t, s.consumer, 1, malformed)
}
