// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// shared are the structs that cross between the kernel's programs and Go.
var shared = map[string]any{
	"config": mapsConfig{}, "port": mapsPort{}, "hist": mapsHist{}, "step": mapsStep{},
	"record": mapsRecord{}, "conn": mapsConn{}, "thread": mapsThread{}, "thread_key": mapsThreadKey{},
	"role_stats": mapsRoleStats{}, "watch_key": mapsWatchKey{}, "wake": mapsWake{}, "mark": mapsMark{}, "stirred": mapsStirred{}, "open_sockets": mapsOpenSockets{}, "listening": mapsListening{},
}

// field is where something lies in a struct, by its path.
type field struct {
	path         string
	offset, size uint32
}

func TestLayoutsAgree(t *testing.T) {
	known := map[string]bool{}
	eachObject(t, func(t *testing.T, _, path string) {
		spec, err := btf.LoadSpec(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range shared {
			var s *btf.Struct
			if err := spec.TypeByName(name, &s); errors.Is(err, btf.ErrNotFound) {
				continue // this object has no use for it
			} else if err != nil {
				t.Fatal(err)
			}
			known[name] = true
			inC := fieldsOfC("", 0, s)
			inGo := fieldsOfGo("", 0, reflect.TypeOf(v))
			if uint32(reflect.TypeOf(v).Size()) != s.Size {
				t.Errorf("%s takes %d bytes here and %d in the object", name, reflect.TypeOf(v).Size(), s.Size)
			}
			if got, want := fmt.Sprint(inGo), fmt.Sprint(inC); got != want {
				t.Errorf("%s lies differently:\nGo %s\nC  %s", name, got, want)
			}
		}
	})
	for name := range shared {
		if !known[name] {
			t.Errorf("no object knows struct %s", name)
		}
	}
}

// plain is a field's name without what C and Go spell differently.
func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

func fieldsOfC(prefix string, base uint32, t btf.Type) []field {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		var out []field
		for _, m := range t.Members {
			out = append(out, fieldsOfC(prefix+"."+plain(m.Name), base+m.Offset.Bytes(), m.Type)...)
		}
		return out
	case *btf.Array:
		size, err := btf.Sizeof(t.Type)
		if err != nil || t.Nelems == 0 {
			return nil
		}
		// The first and the last element tell of all.
		first := fieldsOfC(prefix+"[0]", base, t.Type)
		return append(first, fieldsOfC(fmt.Sprintf("%s[%d]", prefix, t.Nelems-1), base+(t.Nelems-1)*uint32(size), t.Type)...)
	default:
		size, _ := btf.Sizeof(t)
		return []field{{prefix, base, uint32(size)}}
	}
}

func fieldsOfGo(prefix string, base uintptr, t reflect.Type) []field {
	switch t.Kind() {
	case reflect.Struct:
		var out []field
		for f := range t.Fields() {
			if f.Name == "_" && f.Type.Size() == 0 {
				continue // structs.HostLayout
			}
			out = append(out, fieldsOfGo(prefix+"."+plain(f.Name), base+f.Offset, f.Type)...)
		}
		return out
	case reflect.Array:
		first := fieldsOfGo(prefix+"[0]", base, t.Elem())
		last := uintptr(t.Len() - 1)
		return append(first, fieldsOfGo(fmt.Sprintf("%s[%d]", prefix, last), base+last*t.Elem().Size(), t.Elem())...)
	default:
		return []field{{prefix, uint32(base), uint32(t.Size())}}
	}
}
