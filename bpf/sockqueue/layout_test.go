// SPDX-License-Identifier: Apache-2.0

package sockqueue

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestSockLineLayout: the line of the iterator lies in Go as in both objects. The
// structs that cross through maps are compared in package bpf.
func TestSockLineLayout(t *testing.T) {
	objects, err := filepath.Glob("*_bpfel.o")
	if err != nil || len(objects) != 2 {
		t.Fatalf("found %v, %v; want two objects", objects, err)
	}
	inGo := reflect.TypeFor[sockqueueSockLine]()
	for _, path := range objects {
		spec, err := btf.LoadSpec(path)
		if err != nil {
			t.Fatal(err)
		}
		var s *btf.Struct
		if err := spec.TypeByName("sock_line", &s); err != nil {
			t.Fatal(err)
		}
		if uint32(inGo.Size()) != s.Size {
			t.Errorf("%s: %d bytes in Go, %d in C", path, inGo.Size(), s.Size)
		}
		var fields []reflect.StructField
		for f := range inGo.Fields() {
			if f.Name != "_" {
				fields = append(fields, f)
			}
		}
		if len(fields) != len(s.Members) {
			t.Fatalf("%s: %d fields in Go, %d in C", path, len(fields), len(s.Members))
		}
		for i, m := range s.Members {
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.ReplaceAll(m.Name, "_", "")
			if f := fields[i]; !strings.EqualFold(f.Name, name) || f.Offset != uintptr(m.Offset.Bytes()) || f.Type.Size() != uintptr(size) {
				t.Errorf("%s: %s at %d takes %d in Go; %s at %d takes %d in C", path, f.Name, f.Offset, f.Type.Size(), m.Name, m.Offset.Bytes(), size)
			}
		}
	}
}
