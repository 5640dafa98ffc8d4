// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"runtime"
)

// write writes until the connection ends. Before it sleeps, and when it was woken, it lets
// others run once: what they are just producing then shares the next write. (With a
// goroutine per producer that halves the writes.)
func (c *Conn) write() {
	defer close(c.written)
	for c.open() == nil {
		c.state.Store(awake)
		for c.round() {
		}
		runtime.Gosched()
		if c.round() || !c.state.CompareAndSwap(awake, asleep) {
			continue
		}
		<-c.wake
		runtime.Gosched()
	}
	for len(c.queue) > 0 {
		if q := <-c.queue; q.frame != nil {
			c.t.Reject(SendError)
		}
	}
}

// round writes what is there once: queued frames up to 64 KiB, then the source's. false:
// nothing is there, or the connection is closed.
func (c *Conn) round() bool {
	if c.open() != nil {
		return false
	}
	began := c.t.now()
	var sent tally
	var synced []chan struct{}
	c.out = c.out[:0]
	for size := 0; size < writeBytes && len(c.queue) > 0; {
		q := <-c.queue // the writer alone takes, so it does not wait
		if q.synced != nil {
			synced = append(synced, q.synced)
			continue
		}
		c.waited(began, q.since)
		sent.addAll(q.frame)
		c.out = append(c.out, q.frame)
		size += len(q.frame)
	}
	source, frame := c.take(began, &sent)
	if frame != nil {
		c.out = append(c.out, frame)
	}
	written := len(c.out) == 0 || c.writeOut(began, &sent)
	if frame != nil && written {
		source.Wrote(frame)
	}
	for _, s := range synced {
		close(s)
	}
	return len(c.out) > 0 || synced != nil
}

// take asks the source. Its frames wait from the first kick on that is not answered yet.
func (c *Conn) take(now int64, sent *tally) (source Source, frame []byte) {
	kicked := c.kickedAt.Swap(0)
	c.source.Lock()
	if source = c.source.s; source != nil {
		frame = source.Take()
	}
	c.source.Unlock()
	if frame == nil {
		return nil, nil
	}
	var own tally
	own.addAll(frame)
	own.count(&c.t.m.frames[outbound], &c.t.m.bytes[outbound])
	sent.merge(&own)
	if kicked == 0 {
		kicked = now
	}
	c.waited(now, kicked)
	return source, frame
}

// waited counts a wait that a round ended which began at now. What came while the round was
// gathering, after its clock was read, did not wait: a negative wait would take the sum of
// the histogram back.
func (c *Conn) waited(now, since int64) { c.t.m.queueWait.Observe(seconds(max(now-since, 0))) }

func (c *Conn) writeOut(began int64, sent *tally) bool {
	c.writing.Store(began)
	var err error
	if len(c.out) == 1 {
		_, err = c.nc.Write(c.out[0])
	} else {
		c.left = c.out // WriteTo eats it
		_, err = c.left.WriteTo(c.nc)
	}
	c.writing.Store(0)
	c.t.m.writeTime.Observe(seconds(c.t.now() - began))
	if err != nil {
		for _, n := range sent {
			for range n.frames {
				c.t.Reject(SendError)
			}
		}
		c.fail(fmt.Errorf("writing to %s: %w", c.nc.RemoteAddr(), err))
		return false
	}
	sent.count(&c.t.m.written, nil)
	return true
}
