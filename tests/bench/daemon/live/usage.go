// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Memory is what the two processes hold.
type Memory struct{ Daemon, Helper Resident }

// Resident is what one process holds, in bytes. What several share, the program's text
// above all, is in the PSS of each by its part, and in the RSS of each as a whole.
type Resident struct {
	PSS, RSS uint64
	Anon     uint64 // of PSS: heap and stacks; the rest are pages of the program's file
}

// PSS is what both hold together.
func (m Memory) PSS() uint64 { return m.Daemon.PSS + m.Helper.PSS }

// Memory reads it from smaps_rollup.
func (d *Daemon) Memory() (m Memory, err error) {
	if m.Daemon, err = rollup(d.PID); err != nil {
		return m, err
	}
	m.Helper, err = rollup(d.Helper)
	return m, err
}

func rollup(pid int) (r Resident, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return r, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 3 {
			continue
		}
		n, _ := strconv.ParseUint(f[1], 10, 64) // the first line has no number
		switch f[0] {
		case "Pss:":
			r.PSS = n << 10
		case "Pss_Anon:":
			r.Anon = n << 10
		case "Rss:":
			r.RSS = n << 10
		}
	}
	return r, nil
}

// CPU is the time that the two processes have run since they began.
type CPU struct{ Daemon, Helper time.Duration }

// Sum is that of both.
func (c CPU) Sum() time.Duration { return c.Daemon + c.Helper }

// Sub returns the time since an earlier reading.
func (c CPU) Sub(before CPU) CPU { return CPU{c.Daemon - before.Daemon, c.Helper - before.Helper} }

// CPU reads user and system time, to 10 ms, from /proc/PID/stat.
func (d *Daemon) CPU() (c CPU, err error) {
	if c.Daemon, err = cpuOf(d.PID); err != nil {
		return c, err
	}
	c.Helper, err = cpuOf(d.Helper)
	return c, err
}

func cpuOf(pid int) (time.Duration, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("reading %s: it has %d fields after the name", name, len(f))
	}
	var ticks int64
	for _, s := range f[11:13] { // utime and stime, in 1/100 s
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// Descriptors counts the open descriptors of both processes.
func (d *Daemon) Descriptors() (daemon, helper int, err error) {
	if daemon, err = descriptors(d.PID); err != nil {
		return 0, 0, err
	}
	helper, err = descriptors(d.Helper)
	return daemon, helper, err
}

func descriptors(pid int) (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, fmt.Errorf("counting the descriptors of process %d: %w", pid, err)
	}
	return len(list), nil
}
