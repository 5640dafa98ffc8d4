// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

func proc(pid int, name ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(pid)}, name...)...)
}

// fields are the lines of a /proc/PID/status.
func fields(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		out[name] = strings.Join(strings.Fields(value), " ")
	}
	return out
}

// statuses are those of all threads: rights belong to threads.
func statuses(t *testing.T, pid int) (list []map[string]string) {
	t.Helper()
	threads, err := filepath.Glob(proc(pid, "task", "*", "status"))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, f := range threads {
		list = append(list, fields(t, f))
	}
	return list
}

// helper is the daemon's only child.
func (d *daemon) helper(t *testing.T) int {
	t.Helper()
	pids := live.Children(d.PID)
	if len(pids) != 1 {
		t.Fatalf("the daemon has the children %v, not one", pids)
	}
	return pids[0]
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(proc(pid, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// listening are the sockets of a process that listen: addresses and paths.
func listening(t *testing.T, pid int) (names []string) {
	t.Helper()
	held := map[string]bool{}
	fds, err := filepath.Glob(proc(pid, "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			held[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, x := range []struct {
		table              string
		state, inode, name int
		listens            string
	}{
		{"tcp", 3, 9, 1, "0A"},
		{"tcp6", 3, 9, 1, "0A"},
		{"unix", 3, 6, 7, "00010000"}, // __SO_ACCEPTCON
	} {
		b, err := os.ReadFile(proc(pid, "net", x.table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > max(x.inode, x.name) && f[x.state] == x.listens && held[f[x.inode]] {
				names = append(names, x.table+" "+f[x.name])
			}
		}
	}
	return names
}

// attached are the programs and maps that a process holds.
type attached struct{ programs, maps map[uint32]bool }

func attachedBy(t *testing.T, pid int) attached {
	t.Helper()
	a := attached{map[uint32]bool{}, map[uint32]bool{}}
	infos, err := filepath.Glob(proc(pid, "fdinfo", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range infos {
		b, _ := os.ReadFile(f) // it was closed meanwhile
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(line, ":")
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			switch {
			case err != nil:
			case name == "prog_id":
				a.programs[uint32(id)] = true
			case name == "map_id":
				a.maps[uint32(id)] = true
			}
		}
	}
	if len(a.programs) == 0 || len(a.maps) == 0 {
		t.Fatalf("process %d holds %d programs and %d maps", pid, len(a.programs), len(a.maps))
	}
	return a
}

// gone says what of it the kernel still has.
func (a attached) gone() error {
	var left []string
	for id := range a.programs {
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if err == nil {
			p.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			left = append(left, fmt.Sprintf("program %d (%v)", id, err))
		}
	}
	for id := range a.maps {
		m, err := ebpf.NewMapFromID(ebpf.MapID(id))
		if err == nil {
			m.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			left = append(left, fmt.Sprintf("map %d (%v)", id, err))
		}
	}
	if left != nil {
		return fmt.Errorf("%d programs and maps are left: %s", len(left), strings.Join(left, ", "))
	}
	return nil
}
