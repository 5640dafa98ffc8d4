// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
)

// scanner reads segments frame by frame with one buffer, which holds the largest
// frame and never grows.
type scanner struct {
	*bufio.Reader
	at int64 // where in the segment the buffer's unread part starts
}

func newScanner() *scanner {
	return &scanner{Reader: bufio.NewReaderSize(nil, maxFrame)}
}

// scanned is what was found beside the intact frames of a segment.
type scanned struct {
	end     int64  // where the last intact frame ends
	damaged uint64 // places before, between and behind intact frames that hold none
	torn    bool   // what follows end is no damage: it is a frame that is cut off
}

// file hands each intact frame among the first size bytes of a file to f, and
// stops at f's error.
func (s *scanner) file(name string, size int64, f func(Snapshot) error) (scanned, error) {
	file, err := os.Open(name)
	if err != nil {
		return scanned{}, err
	}
	defer file.Close()
	return s.scan(io.NewSectionReader(file, 0, size), f)
}

// scan is file for the bytes of r.
func (s *scanner) scan(r io.Reader, f func(Snapshot) error) (scanned, error) {
	s.Reset(r)
	s.at = 0
	var out scanned
	for {
		snapshot, n, err := s.frame()
		switch {
		case err == nil:
			if s.at > out.end {
				out.damaged++
			}
			if err := f(snapshot); err != nil {
				return out, err
			}
			s.discard(n)
			out.end, out.torn = s.at, false
			continue
		case err == io.EOF:
			if s.at > out.end && !out.torn {
				out.damaged++
			}
			return out, nil
		case errors.Is(err, errCut):
			out.torn = out.torn || s.at == out.end
		case !errors.Is(err, errNone):
			return out, err
		}
		// What a damaged header says of its length is not believed: the next frame
		// may start anywhere behind its first byte.
		s.discard(1)
		if err := s.seek(); err != nil {
			return out, err
		}
	}
}

var (
	errNone = errors.New("no intact frame starts here")
	errCut  = errors.New("the segment ends within a frame")
)

// frame looks at the frame that starts here and returns its size: io.EOF at the
// end, errNone, errCut, or an error of reading.
func (s *scanner) frame() (Snapshot, int, error) {
	b, err := s.Peek(headerLen)
	if err == io.EOF && len(b) > 0 {
		if n := min(len(b), len(magic)); bytes.Equal(b[:n], magic[:n]) {
			return Snapshot{}, 0, errCut
		}
		return Snapshot{}, 0, errNone
	}
	if err != nil {
		return Snapshot{}, 0, err
	}
	h, ok := parseHeader(b)
	if !ok {
		return Snapshot{}, 0, errNone
	}
	if b, err = s.Peek(h.length); err != nil {
		return Snapshot{}, 0, cut(err)
	}
	if !h.intact(b) {
		return Snapshot{}, 0, errNone
	}
	n := h.length + h.payload
	if b, err = s.Peek(n); err != nil {
		return Snapshot{}, 0, cut(err)
	}
	snapshot, ok := h.snapshot(b)
	if !ok {
		return Snapshot{}, 0, errNone
	}
	return snapshot, n, nil
}

// cut is errCut for the end of the segment.
func cut(err error) error {
	if err == io.EOF {
		return errCut
	}
	return err
}

// seek goes on to the next magic, or to the end.
func (s *scanner) seek() error {
	for {
		b, err := s.Peek(max(s.Buffered(), len(magic)))
		if i := bytes.Index(b, magic); i >= 0 {
			s.discard(i)
			return nil
		}
		if err == io.EOF {
			s.discard(len(b))
			return nil
		}
		if err != nil {
			return err
		}
		s.discard(len(b) - len(magic) + 1)
	}
}

// discard skips n bytes that are in the buffer.
func (s *scanner) discard(n int) {
	d, _ := s.Discard(n)
	s.at += int64(d)
}
