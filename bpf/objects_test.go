// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"debug/elf"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// architectures are those that objects are committed for.
var architectures = []string{"x86", "arm64"}

// signals are the folders with programs; "." holds the maps alone.
var signals = []string{"accept", "netloss", "sched", "sockqueue"}

func objectPath(signal, arch string) string {
	name := signal
	if signal == "." {
		name = "maps"
	}
	return filepath.Join(signal, name+"_"+arch+"_bpfel.o")
}

// eachObject runs f for every committed object.
func eachObject(t *testing.T, f func(t *testing.T, signal, path string)) {
	for _, signal := range append([]string{"."}, signals...) {
		for _, arch := range architectures {
			path := objectPath(signal, arch)
			t.Run(path, func(t *testing.T) { f(t, signal, path) })
		}
	}
}

func TestEveryObjectIsKnownHere(t *testing.T) {
	found, err := filepath.Glob("*/*_bpf*.o")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Glob("*_bpf*.o")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, signal := range append([]string{"."}, signals...) {
		for _, arch := range architectures {
			want = append(want, objectPath(signal, arch))
		}
	}
	slices.Sort(want)
	if all := slices.Sorted(slices.Values(append(found, here...))); !slices.Equal(all, want) {
		t.Errorf("the committed objects are %v, want %v", all, want)
	}
}

func TestObjectsAreBPF(t *testing.T) {
	eachObject(t, func(t *testing.T, _, path string) {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Machine != elf.EM_BPF || f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Type != elf.ET_REL {
			t.Errorf("machine %v, %v, %v, %v; want EM_BPF, 64 bits, little-endian, relocatable", f.Machine, f.Class, f.Data, f.Type)
		}
		for _, name := range []string{".BTF", "license"} {
			if f.Section(name) == nil {
				t.Errorf("no section %s", name)
			}
		}
		if s := f.Section("license"); s != nil {
			if text, err := s.Data(); err != nil || strings.TrimRight(string(text), "\x00") != "Dual BSD/GPL" {
				t.Errorf("the licence is %q, %v", text, err)
			}
		}
		for _, s := range f.Sections {
			if strings.HasPrefix(s.Name, ".debug") {
				t.Errorf("debug information was left in: %s", s.Name)
			}
		}
	})
}

// TestObjectsAreBuiltForTheirMachine: each object's Go file names the GOARCH that
// its file name stands for.
func TestObjectsAreBuiltForTheirMachine(t *testing.T) {
	tags := map[string]string{"x86": "amd64", "arm64": "arm64"}
	eachObject(t, func(t *testing.T, _, path string) {
		text, err := os.ReadFile(strings.TrimSuffix(path, ".o") + ".go")
		if err != nil {
			t.Fatal(err)
		}
		for arch, tag := range tags {
			line, _, _ := strings.Cut(string(text[strings.Index(string(text), "//go:build"):]), "\n")
			if strings.Contains(line, tag) != strings.Contains(path, "_"+arch+"_") {
				t.Errorf("the build line is %q", line)
			}
		}
		if !strings.Contains(string(text), "//go:embed "+filepath.Base(path)) {
			t.Errorf("it does not embed %s", path)
		}
	})
}

func TestEveryProgramHasItsRung(t *testing.T) {
	for _, signal := range signals {
		t.Run(signal, func(t *testing.T) {
			used := programsUsed(t, signal)
			for _, arch := range architectures {
				spec, err := ebpf.LoadCollectionSpec(objectPath(signal, arch))
				if err != nil {
					t.Fatal(err)
				}
				there := slices.Sorted(maps.Keys(spec.Programs))
				if !slices.Equal(there, used) {
					t.Errorf("%s: the object has the programs %v, the rungs and iterators name %v", arch, there, used)
				}
				for name, p := range spec.Programs {
					if p.Type != ebpf.Tracing {
						t.Errorf("%s is a %v program: probes only observe, with tp_btf, fentry, fexit and iterators", name, p.Type)
					}
				}
			}
		})
	}
}

// programsUsed reads from a signal's loader which programs it attaches.
func programsUsed(t *testing.T, signal string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(signal, signal+".go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		var names []ast.Expr
		switch sel.Sel.Name {
		case "Rung": // name, load, programs...
			if len(call.Args) > 2 {
				names = call.Args[2:]
			}
		case "NewIterator", "NewConnIterator": // load, program
			names = call.Args[1:]
		}
		for _, e := range names {
			lit, ok := e.(*ast.BasicLit)
			if !ok {
				t.Errorf("a program is not named by a literal")
				continue
			}
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Error(err)
			}
			used[name] = true
		}
		return true
	})
	return slices.Sorted(maps.Keys(used))
}

// TestObjectsShareTheirMaps: each map that an object declares is one of the shared
// ones, with the same shape, so that it can take its place.
func TestObjectsShareTheirMaps(t *testing.T) {
	shared, err := ebpf.LoadCollectionSpec(objectPath(".", "x86"))
	if err != nil {
		t.Fatal(err)
	}
	eachObject(t, func(t *testing.T, _, path string) {
		spec, err := ebpf.LoadCollectionSpec(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range spec.Maps {
			if strings.HasPrefix(name, ".") {
				continue // .rodata and its like
			}
			s := shared.Maps[name]
			if s == nil {
				t.Errorf("%s is not among the shared maps", name)
				continue
			}
			if m.Type != s.Type || m.KeySize != s.KeySize || m.ValueSize != s.ValueSize || m.MaxEntries != s.MaxEntries || m.Flags != s.Flags {
				t.Errorf("%s is %v %d:%d×%d, the shared one %v %d:%d×%d", name,
					m.Type, m.KeySize, m.ValueSize, m.MaxEntries, s.Type, s.KeySize, s.ValueSize, s.MaxEntries)
			}
		}
	})
}
