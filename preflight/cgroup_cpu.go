// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CPUControl is what one cgroup says of the CPU. Throttling happens at the level
// that has the quota, which is often not the one that the process is in.
type CPUControl struct {
	Path    string
	Version int // 1 or 2

	HasQuota bool
	Quota    time.Duration // CPU time granted per Period
	Period   time.Duration

	HasWeight bool
	Weight    int // v2 cpu.weight (default 100), v1 cpu.shares (default 1024)

	HasThrottle bool // the counters below exist
	Periods     uint64
	Throttled   uint64        // periods in which the quota ran out
	ThrottledBy time.Duration // summed over the CPUs
}

// Cores returns the quota in CPUs, or false where there is none.
func (c CPUControl) Cores() (float64, bool) {
	if !c.HasQuota || c.Period <= 0 {
		return 0, false
	}
	return float64(c.Quota) / float64(c.Period), true
}

// Tightest returns the level with the smallest quota, or false where none has one.
func Tightest(levels []CPUControl) (CPUControl, bool) {
	var best CPUControl
	found, least := false, 0.0
	for _, l := range levels {
		if cores, ok := l.Cores(); ok && (!found || cores < least) {
			best, least, found = l, cores, true
		}
	}
	return best, found
}

// CgroupCPU returns the CPU facts of pid's cgroup and of those above it as far as
// they are mounted, leaf first. It reads cpu.max, cpu.weight and cpu.stat (v2) or
// cpu.cfs_quota_us, cpu.cfs_period_us, cpu.shares and cpu.stat (v1). No cpu
// controller in sight is [fs.ErrNotExist].
func (h Host) CgroupCPU(pid int) ([]CPUControl, error) {
	doing := fmt.Sprintf("reading the CPU control of process %d", pid)
	name := h.pidPath(pid, "cgroup")
	b, _, err := readSmall(name, maxSmall)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	groups, err := parseCgroups(name, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	all, err := h.hierarchies()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var levels []CPUControl
	var s skips
	// A v1 cpu hierarchy, where there is one, is the one that controls.
	for _, v2 := range []bool{false, true} {
		for _, m := range all {
			if m.v2 != v2 || !v2 && !m.has("cpu") {
				continue
			}
			for _, g := range groups {
				if g.v2 == v2 && (v2 || slices.Contains(g.controllers, "cpu")) {
					levels = append(levels, m.levels(g.path, &s)...)
				}
			}
		}
		if len(levels) > 0 {
			return levels, s.err(doing)
		}
	}
	if err := s.err(doing); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s: no cpu controller is mounted: %w", doing, fs.ErrNotExist)
}

// levels reads path and its parents up to the mount.
func (m hierarchy) levels(path string, s *skips) []CPUControl {
	var out []CPUControl
	for {
		folder, ok := m.folder(path)
		if !ok {
			return out
		}
		c := CPUControl{Path: clean(path), Version: 1}
		read := c.readV1
		if m.v2 {
			c.Version, read = 2, c.readV2
		}
		read(folder, s)
		if c.HasQuota || c.HasWeight || c.HasThrottle {
			out = append(out, c)
		}
		if path == "/" || path == m.root {
			return out
		}
		path = filepath.Dir(path)
	}
}

func (c *CPUControl) readV2(dir string, s *skips) {
	name := filepath.Join(dir, "cpu.max")
	if b, _, err := readSmall(name, maxSmall); err != nil {
		s.add(err)
	} else if f := strings.Fields(string(b)); len(f) != 2 {
		s.add(malformed(name, 1, "\"QUOTA PERIOD\" in microseconds", string(b)))
	} else if f[0] != "max" {
		quota, ok1 := micros(name, f[0], s)
		period, ok2 := micros(name, f[1], s)
		c.setQuota(quota, period, ok1 && ok2)
	}
	c.readWeight(filepath.Join(dir, "cpu.weight"), s)
	c.readStat(filepath.Join(dir, "cpu.stat"), "throttled_usec", time.Microsecond, s)
}

func (c *CPUControl) readV1(dir string, s *skips) {
	name := filepath.Join(dir, "cpu.cfs_quota_us")
	if b, _, err := readSmall(name, maxSmall); err != nil {
		s.add(err)
	} else if v := strings.TrimSpace(string(b)); v != "-1" {
		quota, ok1 := micros(name, v, s)
		name = filepath.Join(dir, "cpu.cfs_period_us")
		b, _, err := readSmall(name, maxSmall)
		s.add(err)
		if err == nil {
			period, ok2 := micros(name, strings.TrimSpace(string(b)), s)
			c.setQuota(quota, period, ok1 && ok2)
		}
	}
	c.readWeight(filepath.Join(dir, "cpu.shares"), s)
	c.readStat(filepath.Join(dir, "cpu.stat"), "throttled_time", time.Nanosecond, s)
}

func (c *CPUControl) setQuota(quota, period time.Duration, ok bool) {
	if ok && period > 0 {
		c.HasQuota, c.Quota, c.Period = true, quota, period
	}
}

// micros parses a count of microseconds.
func micros(name, v string, s *skips) (time.Duration, bool) {
	n, err := strconv.ParseUint(v, 10, 53)
	if err != nil {
		s.add(malformed(name, 1, "microseconds", v))
		return 0, false
	}
	return time.Duration(n) * time.Microsecond, true
}

func (c *CPUControl) readWeight(name string, s *skips) {
	b, _, err := readSmall(name, maxSmall)
	if err != nil {
		s.add(err)
		return
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 31)
	if err != nil {
		s.add(malformed(name, 1, "a weight", string(b)))
		return
	}
	c.HasWeight, c.Weight = true, int(n)
}

// readStat reads nr_periods, nr_throttled and the throttled time; the root of v2
// has none of them.
func (c *CPUControl) readStat(name, timeKey string, unit time.Duration, s *skips) {
	b, _, err := readSmall(name, maxSmall)
	if err != nil {
		s.add(err)
		return
	}
	for i, line := range strings.Split(string(b), "\n") {
		key, v, _ := strings.Cut(line, " ")
		if key != "nr_periods" && key != "nr_throttled" && key != timeKey {
			continue
		}
		bits := 63
		if key == timeKey && unit > 1 {
			bits = 53 // so that the product fits
		}
		n, err := strconv.ParseUint(v, 10, bits)
		if err != nil {
			s.add(malformed(name, i+1, "a name and a number", line))
			return
		}
		switch key {
		case "nr_periods":
			c.Periods, c.HasThrottle = n, true
		case "nr_throttled":
			c.Throttled = n
		case timeKey:
			c.ThrottledBy = time.Duration(n) * unit
		}
	}
}
