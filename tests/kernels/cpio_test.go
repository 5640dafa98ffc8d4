// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

type cpioEntry struct {
	name string
	mode uint64
	data string
}

// readCpio is the other half of cpioWriter, written from the kernel's document.
func readCpio(t *testing.T, b []byte) []cpioEntry {
	t.Helper()
	var out []cpioEntry
	off := 0
	field := func(i int) uint64 {
		v, err := strconv.ParseUint(string(b[off+6+8*i:off+14+8*i]), 16, 32)
		if err != nil {
			t.Fatalf("field %d at %d: %v", i, off, err)
		}
		return v
	}
	up := func(n int) int { return (n + 3) &^ 3 }
	for {
		if off+110 > len(b) || string(b[off:off+6]) != "070701" {
			t.Fatalf("no header at %d of %d bytes", off, len(b))
		}
		mode, size, nameLen := field(1), int(field(6)), int(field(11))
		name := string(b[off+110 : off+110+nameLen-1])
		start := up(off + 110 + nameLen)
		if name == "TRAILER!!!" {
			return out
		}
		out = append(out, cpioEntry{name, mode, string(b[start : start+size])})
		off = up(start + size)
	}
}

func TestCpioRoundTrip(t *testing.T) {
	here := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(here, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := newCpio(&buf)
	w.add("init", 0o755, []byte("one"))
	w.add("etc/a/plan", 0o644, nil)
	w.add("etc/a/other", 0o600, []byte(strings.Repeat("x", 4097)))
	w.addFile("bin/tool", here)
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if buf.Len()%4 != 0 {
		t.Errorf("%d bytes, not a multiple of four", buf.Len())
	}
	want := []cpioEntry{
		{"init", 0o100755, "one"},
		{"etc", 0o040755, ""},
		{"etc/a", 0o040755, ""},
		{"etc/a/plan", 0o100644, ""},
		{"etc/a/other", 0o100600, strings.Repeat("x", 4097)},
		{"bin", 0o040755, ""},
		{"bin/tool", 0o100755, "#!"},
	}
	got := readCpio(t, buf.Bytes())
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("entry %d is %q %o of %d bytes, want %q %o of %d", i, got[i].name, got[i].mode, len(got[i].data), want[i].name, want[i].mode, len(want[i].data))
		}
	}
}

func TestCpioKeepsTheFirstError(t *testing.T) {
	w := newCpio(&bytes.Buffer{})
	w.addFile("bin/none", filepath.Join(t.TempDir(), "none"))
	w.add("init", 0o755, []byte("one"))
	if err := w.close(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("close returned %v, want the missing file", err)
	}
}
