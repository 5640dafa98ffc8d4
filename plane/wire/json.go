// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrBody is the cause of every error about a body of the control plane: not the JSON
// (or msgpack) that its handler takes. The request is answered with the error's text.
var ErrBody = errors.New("malformed body")

// maxBody bounds a control body in bytes. velo stages what is longer than this
// elsewhere and sends a reference, and no body of ours comes near it.
const maxBody = 256 << 10

// decode reads the JSON b into what into points to. The required fields of an object must be there, spelled exactly and not null: encoding/json would leave their zero
// values, and a missing session id must not open session 0. Other fields may be absent;
// unknown ones are ignored, as velo does.
func decode(what string, b []byte, into any, required ...string) error {
	if len(b) > maxBody {
		return fmt.Errorf("reading the %s: %w: %d bytes, at most %d", what, ErrBody, len(b), maxBody)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("reading the %s: %w: %w", what, ErrBody, err)
	}
	for _, key := range required {
		if !has(b, key) {
			return fmt.Errorf("reading the %s: %w: field %q is missing", what, ErrBody, key)
		}
	}
	return nil
}

// has says whether the object b, which is valid JSON, has the key with a value other than null.
func has(b []byte, key string) bool {
	const space = " \t\r\n"
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			start := i + 1
			for i = start; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth != 1 || string(b[start:i]) != key {
				continue
			}
			// Without a colon it is a value that happens to read like the key.
			value, isKey := bytes.CutPrefix(bytes.TrimLeft(b[i+1:], space), []byte(":"))
			if isKey && bytes.TrimLeft(value, space)[0] != 'n' {
				return true
			}
		}
	}
	return false
}

// encode is json.Marshal for our own structs, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("wire: encoding %T: %v", v, err))
	}
	return b
}
