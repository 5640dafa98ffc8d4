// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// response takes the bytes of one HTTP/1.1 response as they arrive. Only the
// framing is read while the response is on its way; what the events mean is
// found out afterwards, so that stamps are not late by the time of parsing.
type response struct {
	raw  []byte // bytes not yet taken apart
	body []byte // the body without its framing

	status int
	headed bool // the head of the final response is complete
	closes bool // the server said "Connection: close"
	ended  bool // the last byte of the body is here

	chunked   bool
	remaining int64 // bytes left of the body or of this chunk; -1 until the server closes
	inChunk   bool  // remaining bytes of a chunk follow; else a chunk's size line
	trailer   bool  // the last chunk was seen
}

// feed takes what one read delivered.
func (r *response) feed(b []byte) error {
	r.raw = append(r.raw, b...)
	for !r.headed {
		ok, err := r.head()
		if !ok || err != nil {
			return err
		}
	}
	if r.chunked {
		return r.chunks()
	}
	r.plain()
	return nil
}

// closed takes the news that the server sends no more bytes.
func (r *response) closed() error {
	if r.headed && !r.chunked && r.remaining < 0 {
		r.ended = true
	}
	if !r.ended {
		return errors.New("the server closed the connection before the response was complete")
	}
	return nil
}

// head reads one head where it is complete; that of an interim answer (1xx) is
// dropped and the next one is awaited.
func (r *response) head() (bool, error) {
	end := bytes.Index(r.raw, []byte("\r\n\r\n"))
	if end < 0 {
		return false, nil
	}
	lines := strings.Split(string(r.raw[:end]), "\r\n")
	r.raw = r.raw[end+4:]
	fields := strings.SplitN(lines[0], " ", 3)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/1.") {
		return false, fmt.Errorf("reading the status line: %q is none", lines[0])
	}
	status, err := strconv.Atoi(fields[1])
	if err != nil {
		return false, fmt.Errorf("reading the status line: %w", err)
	}
	if status >= 100 && status < 200 {
		return true, nil
	}
	r.status, r.headed, r.remaining = status, true, -1
	r.closes = fields[0] == "HTTP/1.0"
	for _, line := range lines[1:] {
		if err := r.field(line); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *response) field(line string) error {
	name, value, _ := strings.Cut(line, ":")
	value = strings.ToLower(strings.TrimSpace(value))
	switch strings.ToLower(name) {
	case "transfer-encoding":
		r.chunked = value == "chunked"
	case "content-length":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("reading the content length: %q is none", value)
		}
		r.remaining = n
	case "connection":
		r.closes = value == "close"
	}
	return nil
}

func (r *response) plain() {
	take := int64(len(r.raw))
	if r.remaining >= 0 {
		take = min(take, r.remaining)
		r.remaining -= take
		r.ended = r.remaining == 0
	}
	r.body = append(r.body, r.raw[:take]...)
	r.raw = r.raw[take:]
}

func (r *response) chunks() error {
	for !r.ended {
		if r.inChunk {
			take := min(int64(len(r.raw)), r.remaining)
			r.body = append(r.body, r.raw[:take]...)
			r.raw = r.raw[take:]
			r.remaining -= take
			if r.remaining > 0 || len(r.raw) < 2 {
				return nil
			}
			r.raw = r.raw[2:] // the CRLF behind a chunk
			r.inChunk = false
		}
		line, rest, ok := bytes.Cut(r.raw, []byte("\r\n"))
		if !ok {
			return nil
		}
		r.raw = rest
		if r.trailer {
			r.ended = len(line) == 0
			continue
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(size)), 16, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("reading the size of a chunk: %q is none", line)
		}
		r.remaining, r.inChunk, r.trailer = n, n > 0, n == 0
	}
	return nil
}
