// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// read reads until the connection ends, as much as there is each time.
func (c *Conn) read(h Handler) error {
	var r reader
	for reads := 1; ; reads++ {
		if reads%readsInARow == 0 {
			runtime.Gosched()
		}
		n, err := c.nc.Read(r.room())
		if n > 0 {
			r.end += n
			if err := c.deliver(h, &r); err != nil {
				c.t.Reject(DecodeError)
				return fmt.Errorf("reading from %s: %w", c.nc.RemoteAddr(), err)
			}
		}
		switch {
		case err == nil:
			continue
		// Our end closes TLS without a word, so the other one sees no proper end.
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("reading from %s: %w", c.nc.RemoteAddr(), err)
		case r.start != r.end:
			c.t.Reject(DecodeError)
			return fmt.Errorf("reading from %s: %w: %d bytes of it came", c.nc.RemoteAddr(), ErrTruncated, r.end-r.start)
		}
		return io.EOF
	}
}

// readsInARow is after how many reads others may run: where more always comes, the reader
// of one connection would keep them out for 10 ms, the consumers of what it reads too.
const readsInARow = 16

// deliver hands the whole frames of the buffer to the handler.
func (c *Conn) deliver(h Handler, r *reader) error {
	var seen tally
	var err error
	frames := uint64(0)
	for {
		var p wire.Preamble
		var frame []byte
		if p, frame, err = r.next(); frame == nil {
			break
		}
		frames++
		seen.add(p.Type, len(frame))
		h.Frame(c, p.Type, frame[:p.Header:p.Header], frame[p.Header:])
	}
	if frames > 0 {
		if c.got.Add(frames) == frames && c.from != nil {
			c.from.spoke(c)
		}
		seen.count(&c.t.m.frames[inbound], &c.t.m.bytes[inbound])
	}
	if partial := r.start != r.end; partial != c.partial.Load() {
		c.partial.Store(partial)
	}
	return err
}

// reader is the buffer of a connection; its frames are parsed in place.
type reader struct {
	buf        []byte
	start, end int    // what is not parsed yet
	want       int    // length of the frame that begins at start, 0: not known
	base       []byte // buf, unless buf is larger for a while
}

// room is where the next bytes go. It is never empty.
func (r *reader) room() []byte {
	switch {
	case r.buf == nil:
		r.buf = make([]byte, firstRead)
	case r.base == nil: // something came, so it is worth its buffer
		r.base = make([]byte, readBuffer)
		r.replace(r.base)
	case r.start == r.end:
		r.start, r.end, r.buf = 0, 0, r.base
	default:
		r.makeRoom()
	}
	return r.buf[r.end:]
}

// makeRoom makes room for the rest of the frame at start, and for a good part of what
// follows. For a long frame the buffer grows with what has come: a declared length that
// is not there costs nothing.
func (r *reader) makeRoom() {
	fits := r.start+max(r.want, wire.PreambleLen) <= len(r.buf)
	switch {
	case fits && (r.start == 0 || len(r.buf)-r.end >= readBuffer/4):
	case r.want <= readBuffer:
		r.replace(r.base)
	case r.want <= len(r.buf) || r.want > trusted && r.start > 0:
		r.replace(r.buf)
	case r.want <= trusted:
		r.replace(make([]byte, r.want))
	case r.end == len(r.buf):
		r.replace(make([]byte, min(r.want, max(trusted, 2*r.end))))
	}
}

func (r *reader) replace(buf []byte) {
	r.end = copy(buf, r.buf[r.start:r.end])
	r.start, r.buf = 0, buf
}

// next is the next whole frame without its preamble, or nil.
func (r *reader) next() (p wire.Preamble, frame []byte, err error) {
	r.want = 0
	unread := r.buf[r.start:r.end]
	if len(unread) < wire.PreambleLen {
		return p, nil, nil
	}
	if p, err = wire.ParsePreamble(unread); err != nil {
		return p, nil, err
	}
	size := wire.PreambleLen + p.Header + p.Payload
	if len(unread) < size {
		r.want = size
		return p, nil, nil
	}
	r.start += size
	return p, unread[wire.PreambleLen:size], nil
}
