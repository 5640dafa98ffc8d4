// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"testing"

	"github.com/velo-agent/velo-agent/plane"
)

// TestLostCancel loses the connection on which a consumer has just said that it wants no
// more. Nothing else is lost, so its producer must learn of it all the same: the consumer has
// no slot to judge any more, and the producer, out of credit, would wait for ever.
func TestLostCancel(t *testing.T) {
	watch(t)
	s := newScene(t, plane.Options{})
	c := gather(t, s.producer, s.consumer, 0, 64, 0)
	c.live(t)
	sender, a := open(t, s.producer, s.consumer, plane.AnchorOptions{})
	fill(t, sender, recordSize)
	eventually(t, func() string {
		if !a.Waiting() {
			return "nothing came"
		}
		return ""
	})
	cut := make(chan struct{})
	var did bool
	s.back.do(func(f *passing) []step {
		if did || !f.batch() {
			return []step{{write: f.raw}}
		}
		if _, list := f.records(t); !cancels(list) {
			return []step{{write: f.raw}}
		}
		did = true
		close(cut)
		return []step{{reset: true}} // it was written, and never arrives
	})
	a.Close()
	<-cut
	eventually(t, func() string {
		select {
		case <-sender.Done():
			return ""
		default:
			return "the producer of a stream whose cancel was lost waits for ever"
		}
	})
	sender.Close()
	c.finish()
	c.over(t)
	quiet(t, s.producer, s.consumer)
}
