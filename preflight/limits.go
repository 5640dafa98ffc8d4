// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unlimited is the value of a limit that is none.
const Unlimited = math.MaxUint64

// Limit is a resource limit as the process has it, which is not what its
// operator's shell has.
type Limit struct{ Soft, Hard uint64 }

// Limits are the limits of a process that matter to a server.
type Limits struct {
	OpenFiles    Limit
	LockedMemory Limit // bytes

	HasFDs bool // false where they may not be counted
	FDs    int  // descriptors in use
}

// FDShare returns which part of the soft limit of open files is used, from 0 to 1
// and beyond (the limit may be lowered under what is open): at 1, accept fails
// with EMFILE. It is false where either is unknown or there is no limit.
func (l Limits) FDShare() (float64, bool) {
	if !l.HasFDs || l.OpenFiles.Soft == Unlimited {
		return 0, false
	}
	if l.OpenFiles.Soft == 0 {
		return 1, true
	}
	return float64(l.FDs) / float64(l.OpenFiles.Soft), true
}

// FDsLeft returns how many more descriptors the process may open before EMFILE;
// false as for FDShare.
func (l Limits) FDsLeft() (int, bool) {
	if _, ok := l.FDShare(); !ok {
		return 0, false
	}
	if uint64(l.FDs) >= l.OpenFiles.Soft {
		return 0, true
	}
	return int(min(l.OpenFiles.Soft-uint64(l.FDs), math.MaxInt32)), true
}

// Limits reads /proc/PID/limits and counts the descriptors. An [Incomplete] error
// says that the latter was not allowed.
func (h Host) Limits(pid int) (Limits, error) {
	doing := fmt.Sprintf("reading the limits of process %d", pid)
	name := h.pidPath(pid, "limits")
	b, _, err := readSmall(name, maxSmall)
	if err != nil {
		return Limits{}, fmt.Errorf("%s: %w", doing, err)
	}
	l, err := parseLimits(name, string(b))
	if err != nil {
		return Limits{}, fmt.Errorf("%s: %w", doing, err)
	}
	n, err := h.countFDs(pid)
	if err != nil {
		if gone(err) {
			return Limits{}, fmt.Errorf("%s: %w", doing, err)
		}
		var s skips
		s.add(err)
		return l, s.err(doing)
	}
	l.HasFDs, l.FDs = true, n
	return l, nil
}

// parseLimits reads "Max open files   1024   524288   files"; names hold spaces.
func parseLimits(name, text string) (Limits, error) {
	var l Limits
	seen := 0
	for i, line := range strings.Split(text, "\n") {
		var to *Limit
		rest, ok := strings.CutPrefix(line, "Max open files")
		if ok {
			to = &l.OpenFiles
		} else if rest, ok = strings.CutPrefix(line, "Max locked memory"); ok {
			to = &l.LockedMemory
		} else {
			continue
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			return l, malformed(name, i+1, "a soft and a hard limit", line)
		}
		var err1, err2 error
		to.Soft, err1 = parseLimit(f[0])
		to.Hard, err2 = parseLimit(f[1])
		if errors.Join(err1, err2) != nil {
			return l, malformed(name, i+1, "a soft and a hard limit", line)
		}
		seen++
	}
	if seen != 2 {
		return l, malformed(name, 1, "the lines \"Max open files\" and \"Max locked memory\"", "")
	}
	return l, nil
}

func parseLimit(v string) (uint64, error) {
	if v == "unlimited" {
		return Unlimited, nil
	}
	return strconv.ParseUint(v, 10, 64)
}

// countFDs counts the descriptors of a process. Since Linux 6.2 the size of the
// folder is their number, and anybody may ask for it.
func (h Host) countFDs(pid int) (int, error) {
	name := h.pidPath(pid, "fd")
	var file unix.Statfs_t
	if err := unix.Statfs(name, &file); err == nil && file.Type == unix.PROC_SUPER_MAGIC {
		if st, err := os.Stat(name); err == nil && st.Size() > 0 {
			return int(st.Size()), nil
		}
	}
	d, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	n := 0
	for {
		names, err := d.Readdirnames(1024)
		n += len(names)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
