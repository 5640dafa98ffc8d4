// SPDX-License-Identifier: Apache-2.0

package side

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/rig/carrier"
)

// Usage is what a process has used so far. Absent is not zero. Reading it costs something
// itself: CPU time and allocations are read at its beginning and at its end, and an
// interval goes from the end of one reading to the beginning of the next.
type Usage struct {
	Begin    Spent `json:"begin"`
	End      Spent `json:"end"`
	Switches int64 `json:"switches"` // of contexts
	RSS      int64 `json:"rss"`      // bytes
	Peak     int64 `json:"peak"`     // of RSS
	// Writes are the carrier's own count, or else the kernel's of write and writev, which
	// has the wake-ups of Go's poller too, but no send and sendmsg.
	Writes *int64 `json:"writes,omitempty"`
}

// Spent is the part of it that reading adds to.
type Spent struct {
	CPU     int64   `json:"cpu_ns"`            // user and system
	Mallocs *uint64 `json:"mallocs,omitempty"` // of a Go process
}

func usage(carried any) (*Usage, error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return nil, fmt.Errorf("reading the CPU time: %w", err)
	}
	u := &Usage{Begin: Spent{cpuTime(&r), mallocs()}, Switches: r.Nvcsw + r.Nivcsw}
	u.RSS, u.Peak = number("/proc/self/status", "VmRSS")<<10, number("/proc/self/status", "VmHWM")<<10
	if w, ok := carried.(carrier.Writes); ok {
		n, err := w.Writes()
		if err != nil {
			return nil, fmt.Errorf("counting the writes: %w", err)
		}
		u.Writes = &n
	} else if n := number("/proc/self/io", "syscw"); n >= 0 {
		u.Writes = &n
	}
	u.End.Mallocs = mallocs()
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return nil, fmt.Errorf("reading the CPU time: %w", err)
	}
	u.End.CPU = cpuTime(&r)
	return u, nil
}

func cpuTime(r *unix.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }

func mallocs() *uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return &m.Mallocs
}

// number returns the number behind a key, -1 where there is none.
func number(file, key string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	for line := range bytes.Lines(b) {
		name, value, _ := strings.Cut(string(line), ":")
		if name == key {
			if n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}
