// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

// SchedStat is what the scheduler has added up for a thread since it began.
type SchedStat struct {
	Run    time.Duration // on a CPU
	Wait   time.Duration // runnable, waiting for a CPU
	Slices uint64        // times it was put on a CPU
}

// Sub returns what was added since an earlier reading.
func (s SchedStat) Sub(earlier SchedStat) SchedStat {
	return SchedStat{s.Run - earlier.Run, s.Wait - earlier.Wait, s.Slices - earlier.Slices}
}

// SchedStat reads /proc/PID/task/TID/schedstat, which anybody may. A kernel
// without these figures gives [fs.ErrNotExist] (no file) or
// [errors.ErrUnsupported] (all zero, as for a thread that has never run).
func (h Host) SchedStat(pid, tid int) (SchedStat, error) {
	name := h.pidPath(pid, "task", strconv.Itoa(tid), "schedstat")
	b, _, err := readSmall(name, maxSmall)
	if err != nil {
		return SchedStat{}, fmt.Errorf("reading scheduling times: %w", err)
	}
	f := strings.Fields(string(b))
	if len(f) != 3 {
		return SchedStat{}, malformed(name, 1, "three numbers", string(b))
	}
	var v [3]uint64
	for i := range f {
		if v[i], err = strconv.ParseUint(f[i], 10, 63); err != nil {
			return SchedStat{}, malformed(name, 1, "three numbers", string(b))
		}
	}
	if v == [3]uint64{} {
		return SchedStat{}, fmt.Errorf("%s is all zero: %w", name, errors.ErrUnsupported)
	}
	return SchedStat{Run: time.Duration(v[0]), Wait: time.Duration(v[1]), Slices: v[2]}, nil
}

// Thread is one thread of a process.
type Thread struct {
	TID  int
	Comm string
}

// Threads lists the threads of a process by tid.
func (h Host) Threads(pid int) ([]Thread, error) {
	doing := fmt.Sprintf("listing the threads of process %d", pid)
	d, err := os.Open(h.pidPath(pid, "task"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var s skips
	var out []Thread
	for _, n := range names {
		tid, err := strconv.ParseUint(n, 10, 31)
		if err != nil {
			continue
		}
		b, _, err := readSmall(h.pidPath(pid, "task", n, "comm"), 64)
		if err != nil {
			s.add(err)
			continue
		}
		out = append(out, Thread{TID: int(tid), Comm: clean(strings.TrimSuffix(string(b), "\n"))})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].TID < out[j].TID })
	return out, s.err(doing)
}
