// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// unhex reads hexadecimal digits, blanks between them ignored.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// equal compares what was written with the digits of a byte vector.
func equal(t *testing.T, got []byte, want string) {
	t.Helper()
	if !bytes.Equal(got, unhex(t, want)) {
		t.Errorf("got  %x\nwant %x", got, unhex(t, want))
	}
}

// wantErr fails unless err has the cause, or is nil where no cause is wanted.
func wantErr(t *testing.T, err, cause error) {
	t.Helper()
	if !errors.Is(err, cause) {
		t.Errorf("error %v, want %v", err, cause)
	}
}

// noAllocs fails if f allocates.
func noAllocs(t *testing.T, name string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations, want 0", name, n)
	}
}

const (
	goNode   = "00112233-4455-6677-8899-aabbccddeeff"
	rustNode = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

	goWorker   WorkerID = 14225989560148541334
	rustWorker WorkerID = 9143905968562085142
)
