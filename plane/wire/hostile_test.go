// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// What is declared and not there costs nothing: a few bytes that announce four billion of
// something allocate the error and no more.
func TestHugeLengths(t *testing.T) {
	const limit = 2048 // bytes a call
	for name, parse := range map[string]func() error{
		"record": func() error {
			_, _, err := walk(unhex(t, openBatch[:len(openBatch)-len("00000010 0000000000000001 0000000000000001")]+"ffffffff"))
			return err
		},
		"headers": func() error {
			return walkHeaders(unhex(t, "df ffffffff"), func(_, _ []byte) {})
		},
		"header text": func() error {
			return walkHeaders(unhex(t, "81 db ffffffff"), func(_, _ []byte) {})
		},
		"item bin":   func() error { _, err := ItemBytes(unhex(t, "c6 ffffffff")); return err },
		"item array": func() error { _, err := ItemBytes(unhex(t, "dd ffffffff")); return err },
		"frame text": func() error { _, _, err := ParseStreamFrame(unhex(t, "81 01 db ffffffff")); return err },
		"address":    func() error { _, err := Address(unhex(t, "df ffffffff")).Entries(); return err },
		"entry":      func() error { _, err := Address(unhex(t, "81 a174 dd ffffffff")).Entries(); return err },
		"endpoints":  func() error { _, err := ParseEndpoints(unhex(t, "dd ffffffff")); return err },
		"endpoint":   func() error { _, err := ParseEndpoints(unhex(t, "91 95 db ffffffff")); return err },
		"ticket":     func() error { _, _, err := ParseTicketMsgpack(unhex(t, "95 db ffffffff")); return err },
	} {
		if parse() == nil {
			t.Errorf("%s: no error", name)
		}
		if n := allocated(func() { _ = parse() }); n > limit {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
}

// Nesting is not followed: what is deep costs no more than what is long, and the stack nothing.
func TestDeepNesting(t *testing.T) {
	deep := bytes.Repeat([]byte{0x91}, 1<<20)
	for name, parse := range map[string]func() error{
		"item":      func() error { _, err := ItemBytes(deep); return err },
		"frame":     func() error { _, _, err := ParseStreamFrame(append([]byte{0x81}, deep...)); return err },
		"address":   func() error { _, err := Address(deep).Entries(); return err },
		"endpoints": func() error { _, err := ParseEndpoints(deep); return err },
		"JSON":      func() error { return json.Unmarshal([]byte(strings.Repeat("[", 1<<20)), new(PeerInfo)) },
		"field":     func() error { return new(CancelRequest).UnmarshalJSON([]byte(strings.Repeat(`{"x":`, 1<<15))) },
	} {
		if parse() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The costliest input that is still taken allocates a small multiple of its own size.
func TestCostliestBodies(t *testing.T) {
	const times, fixed = 32, 16 << 10
	address := NewAddress(numbered(maxEntries))
	endpoints := AppendEndpoints(nil, slices.Repeat([]Endpoint{{IP: netip.IPv6Unspecified()}}, maxEndpoints))
	handlers := []byte(`{"handlers":[""` + strings.Repeat(`,""`, maxBody/3-10) + `]}`)
	for name, tt := range map[string]struct {
		size  int
		parse func()
	}{
		"address":   {len(address), func() { _, _ = address.Entries() }},
		"endpoints": {len(endpoints), func() { _, _ = ParseEndpoints(endpoints) }},
		"handlers":  {len(handlers), func() { _ = json.Unmarshal(handlers, new(HandlersAnswer)) }},
	} {
		if n := allocated(tt.parse); n > uint64(fixed+times*tt.size) {
			t.Errorf("%s: %d bytes allocated for %d", name, n, tt.size)
		}
	}
}

// allocated is how many bytes one call allocates.
func allocated(f func()) uint64 {
	const calls = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / calls
}
