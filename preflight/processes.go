// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

// userHZ is the tick of /proc/PID/stat on every architecture that Go runs on.
const userHZ = 100

// Process is what is known of one process. Texts are clean (printable, bounded)
// and command lines are free of secrets.
type Process struct {
	PID, TGID, PPID int
	State           byte     // R, S, D, Z, ... as in /proc/PID/stat
	Comm            string   // at most 15 bytes in the kernel
	Exe             string   // empty for kernel threads, zombies and where denied
	Args            []string // at most 4 KiB of the command line
	ArgsCut         bool     // the command line was longer
	UID             uint32   // effective
	Cgroup          string   // the path that tells most, see [Host.Processes]
	Container       string   // 64 hex digits, or empty
	Pod             string   // UID of its Kubernetes pod, or empty
	NetNS           uint64   // inode of the network namespace; 0 where unknown
	StartTicks      uint64   // since boot, in 1/100 s: with PID it names a process for good
	Start           time.Time
	Denied          []string // fields left out for want of a right: "exe", "netns"
}

// Cmdline returns the arguments joined by spaces.
func (p Process) Cmdline() string { return strings.Join(p.Args, " ") }

// Processes lists the processes of the host by pid. Start is exact to 1 s (the
// kernel gives the boot time in whole seconds). Cgroup is the path in the v2
// hierarchy, or that of the v1 cpu or memory controller where v2 says "/".
// An [Incomplete] error comes with a valid list.
func (h Host) Processes() ([]Process, error) {
	pids, err := h.pids()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var s skips
	boot, err := h.bootTime()
	s.add(err)
	s.add(h.hidden())
	nets := h.newNetNSResolver()
	procs := make([]Process, 0, len(pids))
	for _, pid := range pids {
		p, err := h.process(pid, nets, &s)
		if err != nil {
			s.add(err)
			continue
		}
		if !boot.IsZero() {
			p.Start = boot.Add(time.Duration(p.StartTicks) * (time.Second / userHZ))
		}
		procs = append(procs, p)
	}
	return procs, s.err("listing processes")
}

// Line returns a process and its ancestors, itself first. An [Incomplete] error comes
// with what there is; fs.ErrNotExist: the process is gone.
func (h Host) Line(pid int) ([]Process, error) {
	var s skips
	var line []Process
	nets := h.newNetNSResolver()
	for pid > 0 && len(line) < maxLine {
		p, err := h.process(pid, nets, &s)
		if err != nil && len(line) == 0 {
			return nil, err
		}
		if err != nil {
			break // it ended meanwhile
		}
		line = append(line, p)
		pid = p.PPID
	}
	return line, s.err("reading a process and its ancestors")
}

// maxLine ends a walk that pids used anew lead in a circle.
const maxLine = 64

// pids returns the numbers among the names in the root, in order.
func (h Host) pids() ([]int, error) {
	d, err := os.Open(h.root())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, n := range names {
		if pid, err := strconv.ParseUint(n, 10, 31); err == nil {
			pids = append(pids, int(pid))
		}
	}
	sort.Ints(pids)
	return pids, nil
}

// process reads one process; what is denied goes to s.
func (h Host) process(pid int, nets *netNSResolver, s *skips) (Process, error) {
	p := Process{PID: pid, TGID: pid}
	b, _, err := readSmall(h.pidPath(pid, "stat"), maxSmall)
	if err != nil {
		return p, err
	}
	if err := p.parseStat(h.pidPath(pid, "stat"), b); err != nil {
		return p, err
	}
	if b, _, err = readSmall(h.pidPath(pid, "status"), maxSmall); err != nil {
		return p, err
	}
	if err := p.parseStatus(h.pidPath(pid, "status"), b); err != nil {
		return p, err
	}
	b, p.ArgsCut, err = readSmall(h.pidPath(pid, "cmdline"), maxCmdline)
	s.add(err)
	p.Args = splitCmdline(b)
	b, _, err = readSmall(h.pidPath(pid, "cgroup"), maxSmall)
	s.add(err)
	groups, err := parseCgroups(h.pidPath(pid, "cgroup"), b)
	s.add(err)
	p.Cgroup = bestCgroup(groups)
	p.Container = containerID(groups)
	p.Pod = podUID(groups)

	exe, err := os.Readlink(h.pidPath(pid, "exe"))
	p.Exe = clean(exe)
	p.denied("exe", err, s)
	p.NetNS, err = nets.of(pid)
	p.denied("netns", err, s)
	return p, nil
}

// denied notes that a field could not be read; that a process has none is no error.
func (p *Process) denied(field string, err error, s *skips) {
	if err == nil || gone(err) {
		return
	}
	p.Denied = append(p.Denied, field)
	s.add(err)
}

// parseStat reads "pid (comm) state ppid ..."; comm may hold anything, so the
// last ')' ends it.
func (p *Process) parseStat(file string, b []byte) error {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return malformed(file, 1, "\"pid (comm) state\"", string(b))
	}
	comm := b[open+1 : end]
	if len(comm) > 64 { // 15 in the kernel, up to 63 for its workers
		comm = comm[:64]
	}
	p.Comm = clean(string(comm))
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return malformed(file, 1, "at least 22 fields", string(b[end:]))
	}
	p.State = f[0][0]
	ppid, err := strconv.ParseUint(f[1], 10, 31)
	if err != nil {
		return malformed(file, 1, "a parent's pid in field 4", f[1])
	}
	p.PPID = int(ppid)
	if p.StartTicks, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return malformed(file, 1, "a start time in field 22", f[19])
	}
	return nil
}

// parseStatus reads Tgid and Uid (real, effective, saved, filesystem).
func (p *Process) parseStatus(file string, b []byte) error {
	seen := 0
	for i, line := range strings.Split(string(b), "\n") {
		key, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		switch key {
		case "Tgid":
			if len(f) != 1 {
				return malformed(file, i+1, "one number", line)
			}
			n, err := strconv.ParseUint(f[0], 10, 31)
			if err != nil {
				return malformed(file, i+1, "a number", line)
			}
			p.TGID = int(n)
			seen++
		case "Uid":
			if len(f) != 4 {
				return malformed(file, i+1, "four numbers", line)
			}
			n, err := strconv.ParseUint(f[1], 10, 32)
			if err != nil {
				return malformed(file, i+1, "four numbers", line)
			}
			p.UID = uint32(n)
			seen++
		}
	}
	if seen != 2 {
		return malformed(file, 1, "the lines Tgid and Uid", "")
	}
	return nil
}

// bootTime returns btime of /proc/stat.
func (h Host) bootTime() (time.Time, error) {
	b, _, err := readSmall(h.path("stat"), 4<<20)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the boot time: %w", err)
	}
	for i, line := range strings.Split(string(b), "\n") {
		v, ok := strings.CutPrefix(line, "btime ")
		if !ok {
			continue
		}
		sec, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil {
			return time.Time{}, malformed(h.path("stat"), i+1, "btime and a number", line)
		}
		return time.Unix(sec, 0), nil
	}
	return time.Time{}, malformed(h.path("stat"), 1, "a line btime", "")
}

// hidden returns an error that wraps fs.ErrPermission where procfs is mounted so
// that this user does not see the processes of others.
func (h Host) hidden() error {
	if os.Geteuid() == 0 {
		return nil
	}
	mounts, err := h.mounts()
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		if m.kind != "proc" || m.point != h.root() {
			continue
		}
		for _, o := range strings.Split(m.options, ",") {
			if v, ok := strings.CutPrefix(o, "hidepid="); ok && v != "0" && v != "off" {
				return fmt.Errorf("%s is mounted with %s, other users' processes are hidden: %w", m.point, o, fs.ErrPermission)
			}
		}
	}
	return nil
}
