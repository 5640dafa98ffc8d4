// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"time"
)

// sighting is what the sweep saw of a connection: how many frames it had brought, when
// that last changed, and when nothing was last waited for.
type sighting struct {
	frames         uint64
	moved, settled time.Time
}

// sweep closes what has not moved for too long, four times within the patience. It
// stands in for deadlines on connections, which would have to be set for every read that
// ends within a frame.
func (t *Transport) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.conns) == 0 {
		return
	}
	now, patience := time.Now(), t.o.Patience
	for c := range t.conns {
		c.look(now)
		if now.Sub(c.seen.settled) > patience {
			t.Reject(DecodeError)
			c.fail(fmt.Errorf("reading from %s: %w: nothing for %v", c.raw.RemoteAddr(), ErrIncomplete, patience))
		}
		if since := c.writing.Load(); since != 0 && time.Duration(t.now()-since) > patience {
			c.fail(fmt.Errorf("writing to %s: %w: one write took over %v", c.raw.RemoteAddr(), ErrStuck, patience))
		}
	}
	t.sweeper.Reset(patience / 4)
}

func (c *Conn) look(now time.Time) {
	if got := c.got.Load(); got != c.seen.frames {
		c.seen = sighting{frames: got, moved: now, settled: now}
	}
	if !c.partial.Load() && (c.Dialed() || c.seen.frames > 0) {
		c.seen.settled = now
	}
}
