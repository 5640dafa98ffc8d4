// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Read is one read of the client's that returned data.
type Read struct {
	At                        int64 // right after it returned
	Bytes                     int
	Interim, Headers, Content bool // it completed a 1xx answer, the headers; it brought bytes of a content event
}

// An Event is one SSE event with content. First and Last are the stamps of the
// reads that brought its first and its last byte.
type Event struct {
	First, Last int64
	Bytes       int
}

// response reads an HTTP/1.1 answer as it comes and notes when each part came.
type response struct {
	res   *Result
	at    int64 // stamp of the current read
	read  *Read
	state state
	line  []byte // the head, a chunk's size line or a trailer so far
	left  int    // bytes of the current chunk yet to come
	event struct {
		first  int64
		bytes  int
		prefix []byte
		newln  bool // the last byte was \n
	}
}

type state int

const (
	inHead state = iota
	inSize
	inData
	afterData
	inTrailer
	complete
)

var errFraming = errors.New("the answer is not a chunked HTTP/1.1 response")

// feed takes the bytes of one read.
func (r *response) feed(b []byte, at int64) error {
	r.at = at
	r.res.Reads = append(r.res.Reads, Read{At: at, Bytes: len(b)})
	r.read = &r.res.Reads[len(r.res.Reads)-1]
	for len(b) > 0 && r.state != complete {
		var err error
		if r.state == inData {
			n := min(r.left, len(b))
			r.data(b[:n])
			if r.left -= n; r.left == 0 {
				r.state = afterData
			}
			b = b[n:]
		} else if b, err = r.takeLine(b); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: %d bytes after its end", errFraming, len(b))
	}
	return nil
}

// takeLine consumes b up to the end of a line and acts on a whole one.
func (r *response) takeLine(b []byte) (rest []byte, err error) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		r.line = append(r.line, b...)
		return nil, nil
	}
	r.line = append(r.line, b[:i+1]...)
	rest = b[i+1:]
	switch r.state {
	case inHead:
		if !bytes.HasSuffix(r.line, []byte("\r\n\r\n")) {
			return rest, nil
		}
		err = r.head(string(r.line))
	case inSize:
		var n int64
		size, _, _ := strings.Cut(strings.TrimSpace(string(r.line)), ";")
		if n, err = strconv.ParseInt(size, 16, 32); err != nil {
			err = fmt.Errorf("%w: %w", errFraming, err)
		}
		r.left, r.state = int(n), inData
		if n == 0 {
			r.state = inTrailer
		}
	case afterData:
		r.state = inSize
	case inTrailer:
		if len(r.line) == 2 {
			r.state, r.res.Done = complete, r.at
		}
	}
	r.line = r.line[:0]
	return rest, err
}

func (r *response) head(text string) error {
	if strings.HasPrefix(text, "HTTP/1.1 1") {
		r.res.Interim, r.read.Interim = r.at, true
		return nil
	}
	if !strings.HasPrefix(text, "HTTP/1.1 200 ") || !strings.Contains(strings.ToLower(text), "transfer-encoding: chunked") {
		return fmt.Errorf("%w: %q", errFraming, text)
	}
	r.res.Headers, r.read.Headers = r.at, true
	r.state = inSize
	return nil
}

const keptPrefix = 256

func (r *response) data(b []byte) {
	e := &r.event
	for len(b) > 0 {
		if e.bytes == 0 {
			e.first = r.at
		}
		n, ends := len(b), false
		if i := bytes.IndexByte(b, '\n'); i == 0 && e.newln {
			n, ends = 1, true
		} else if i >= 0 {
			n = i + 1
		}
		e.newln = b[n-1] == '\n'
		e.prefix = append(e.prefix, b[:min(n, keptPrefix-len(e.prefix))]...)
		e.bytes += n
		b = b[n:]
		content := isContent(e.prefix)
		r.read.Content = r.read.Content || content
		if !ends {
			continue
		}
		if content {
			r.res.Events = append(r.res.Events, Event{e.first, r.at, e.bytes})
		} else if bytes.Contains(e.prefix, []byte(`"role"`)) {
			r.res.Role = r.at
		}
		e.bytes, e.newln, e.prefix = 0, false, e.prefix[:0]
	}
}

// isContent reports whether an event carries text, not only a role.
func isContent(event []byte) bool {
	_, text, found := bytes.Cut(event, []byte(`"content":"`))
	return found && len(text) > 0 && text[0] != '"'
}
