// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// Carriers of bytes put the length before each record, 4 bytes, and write both at once.

// framed is a Sender over a writer whose Close tells the reader of the end.
type framed struct {
	w   io.WriteCloser
	buf []byte
}

func (f *framed) Send(record []byte) error {
	f.buf = binary.BigEndian.AppendUint32(f.buf[:0], uint32(len(record)))
	f.buf = append(f.buf, record...)
	_, err := f.w.Write(f.buf)
	return err
}

func (f *framed) Close() error { return f.w.Close() }

// drain tells sink of the records that r brings, all of one stream.
func drain(r io.Reader, sink *load.Sink) {
	br := bufio.NewReader(r)
	var (
		s      *load.Stream
		prefix [4]byte
		record []byte
	)
	for {
		_, err := io.ReadFull(br, prefix[:])
		if err == nil {
			n := int(binary.BigEndian.Uint32(prefix[:]))
			if n > load.Longest {
				sink.Fail(fmt.Errorf("a record of %d bytes", n))
				return
			}
			if cap(record) < n {
				record = make([]byte, n)
			}
			record = record[:n]
			_, err = io.ReadFull(br, record)
		}
		switch {
		case err == nil && s == nil:
			if s = sink.Named(record); s == nil {
				return
			}
			s.Take(record)
		case err == nil:
			s.Take(record)
		case s == nil:
			sink.Fail(fmt.Errorf("a stream ended before its first record: %w", err))
			return
		case errors.Is(err, io.EOF):
			s.End(nil)
			return
		default:
			s.End(err)
			return
		}
	}
}
