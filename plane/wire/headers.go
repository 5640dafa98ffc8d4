// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

const (
	maxHeaders     = 16384 // the whole map, bytes
	maxHeaderValue = 1024  // bytes; velo checks it when it writes, not when it reads
)

// AppendHeaders appends the map as the headers of a message, keys sorted: at most 1,024
// bytes a value and 16,384 in all. A nil map appends nothing, which means that there are
// no headers. On an error dst is returned as it was.
func AppendHeaders(dst []byte, kv map[string]string) ([]byte, error) {
	if kv == nil {
		return dst, nil
	}
	out := msgp.AppendMapHeader(dst, uint32(len(kv)))
	for _, key := range slices.Sorted(maps.Keys(kv)) {
		value := kv[key]
		if len(value) > maxHeaderValue || !utf8.ValidString(key) || !utf8.ValidString(value) {
			return dst, fmt.Errorf("writing the header %q: %w: a value of %d bytes; want UTF-8, at most %d bytes", key, ErrHeader, len(value), maxHeaderValue)
		}
		out = msgp.AppendString(msgp.AppendString(out, key), value)
	}
	if n := len(out) - len(dst); n > maxHeaders {
		return dst, fmt.Errorf("writing %d headers: %w: %d bytes, at most %d", len(kv), ErrHeader, n, maxHeaders)
	}
	return out, nil
}

// LookupHeader finds a key in the Headers of a message or response. Of a key given twice
// the last value counts, as in velo.
func LookupHeader(headers []byte, key string) (value string, ok bool) {
	if len(headers) == 0 {
		return "", false
	}
	var last []byte
	err := walkHeaders(headers, func(k, v []byte) {
		if string(k) == key {
			last, ok = v, true
		}
	})
	if err != nil || !ok {
		return "", false
	}
	return string(last), true
}

// parseHeaders reads the length and the map that end a header. Bytes after them are
// ignored, as in velo.
func parseHeaders(b []byte, limit int) ([]byte, error) {
	n, rest := int(binary.LittleEndian.Uint16(b)), b[2:]
	switch {
	case n == 0:
		return nil, nil
	case n > limit || n > len(rest):
		return nil, fmt.Errorf("%d bytes of headers with %d left, at most %d", n, len(rest), limit)
	}
	headers := rest[:n:n]
	return headers, walkHeaders(headers, func(_, _ []byte) {})
}

// walkHeaders checks the map while it calls each with its entries, views into b.
func walkHeaders(b []byte, each func(key, value []byte)) error {
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	for range n {
		var key, value []byte
		if key, rest, err = readText(rest); err != nil {
			break
		}
		if value, rest, err = readText(rest); err != nil {
			break
		}
		each(key, value)
	}
	if err != nil {
		return fmt.Errorf("headers that are no map of text: %w", err)
	}
	return nil
}
