// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadEach(t *testing.T) {
	var b bytes.Buffer
	for i := range uint32(3) {
		if err := binary.Write(&b, binary.NativeEndian, mapsThreadKey{Role: i, Port: i * i}); err != nil {
			t.Fatal(err)
		}
	}
	whole := b.Bytes()
	var sum uint32
	// The kernel hands an iterator's output over in pieces of any size.
	if err := ReadEach(iotest.OneByteReader(bytes.NewReader(whole)), func(k *mapsThreadKey) { sum += k.Role + k.Port }); err != nil || sum != 8 {
		t.Errorf("the elements add up to %d, %v, want 8", sum, err)
	}
	n := 0
	err := ReadEach(bytes.NewReader(whole[:len(whole)-1]), func(*mapsThreadKey) { n++ })
	if err == nil || !strings.Contains(err.Error(), "7 bytes too many") || n != 2 {
		t.Errorf("a torn element gave %d elements and %v", n, err)
	}
	if err := ReadEach(iotest.ErrReader(io.ErrUnexpectedEOF), func(*mapsThreadKey) {}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the error is %v", err)
	}
}
