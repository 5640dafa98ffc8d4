// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// cgroup is one line of /proc/PID/cgroup.
type cgroup struct {
	controllers []string // none: the v2 hierarchy, or a named v1 one
	v2          bool
	path        string
}

// parseCgroups reads "hierarchy:controllers:path" lines. Paths are not cleaned:
// they name folders.
func parseCgroups(name string, b []byte) ([]cgroup, error) {
	var out []cgroup
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" {
			continue
		}
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			return nil, malformed(name, i+1, "hierarchy:controllers:/path", line)
		}
		g := cgroup{v2: f[0] == "0" && f[1] == "", path: f[2]}
		if f[1] != "" && !strings.HasPrefix(f[1], "name=") {
			g.controllers = strings.Split(f[1], ",")
		}
		out = append(out, g)
	}
	return out, nil
}

// bestCgroup returns the path that tells most: v2, then the v1 cpu and memory
// controllers, the first that is not the root; empty where there is none.
func bestCgroup(groups []cgroup) string {
	best := ""
	for _, want := range []func(cgroup) bool{
		func(g cgroup) bool { return g.v2 },
		func(g cgroup) bool { return slices.Contains(g.controllers, "cpu") },
		func(g cgroup) bool { return slices.Contains(g.controllers, "memory") },
	} {
		for _, g := range groups {
			if !want(g) {
				continue
			}
			if g.path != "/" {
				return clean(g.path)
			}
			best = "/"
		}
	}
	return best
}

// containerID returns the last 64 hexadecimal digits that stand alone in a path,
// as Docker, containerd, CRI-O and Podman write them; empty where there is none.
func containerID(groups []cgroup) string {
	for _, g := range groups {
		words := strings.FieldsFunc(g.path, func(r rune) bool { return strings.ContainsRune("/-.:_", r) })
		for i := len(words) - 1; i >= 0; i-- {
			if w := words[i]; len(w) == 64 && strings.Trim(w, "0123456789abcdef") == "" {
				return w
			}
		}
	}
	return ""
}

// podUID returns the UID of the Kubernetes pod that a path names, as the kubelet's
// cgroupfs and systemd drivers write it; empty where there is none.
func podUID(groups []cgroup) string {
	for _, g := range groups {
		for _, part := range strings.Split(g.path, "/") {
			_, uid, ok := strings.Cut(strings.TrimSuffix(part, ".slice"), "pod")
			if strings.HasPrefix(part, "kubepods-") {
				i := strings.LastIndex(part, "-pod")
				if ok = i >= 0; ok {
					uid = strings.TrimSuffix(part[i+4:], ".slice")
				}
			}
			uid = strings.ReplaceAll(uid, "_", "-")
			if ok && len(uid) == 36 && strings.Trim(uid, "0123456789abcdef-") == "" {
				return uid
			}
		}
	}
	return ""
}

// hierarchy is a mounted cgroup file system.
type hierarchy struct {
	mount
	v2 bool
}

// hierarchies returns the mounted cgroup file systems: v2, then cpu, memory, the rest.
func (h Host) hierarchies() ([]hierarchy, error) {
	mounts, err := h.mounts()
	if err != nil {
		return nil, err
	}
	var out []hierarchy
	for _, m := range mounts {
		if m.kind == "cgroup" || m.kind == "cgroup2" {
			out = append(out, hierarchy{mount: m, v2: m.kind == "cgroup2"})
		}
	}
	rank := func(m hierarchy) int {
		switch {
		case m.v2:
			return 0
		case m.has("cpu"):
			return 1
		case m.has("memory"):
			return 2
		}
		return 3
	}
	sort.SliceStable(out, func(i, j int) bool { return rank(out[i]) < rank(out[j]) })
	return out, nil
}

// has reports whether a v1 hierarchy has the controller.
func (m hierarchy) has(controller string) bool {
	return !m.v2 && slices.Contains(strings.Split(m.options, ","), controller)
}

// folder returns where a cgroup path lies, or false where it is outside of what is mounted.
func (m hierarchy) folder(path string) (string, bool) {
	rel, err := filepath.Rel(m.root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.Join(m.point, rel), true
}

// PIDsOfCgroup returns the processes of a cgroup and of those below it, in order.
// path is one as in /proc/PID/cgroup, or a folder below a cgroup mount. Where
// several hierarchies have it, the first in the order v2, cpu, memory, others
// that holds a process counts. A path that none has is [fs.ErrNotExist].
func (h Host) PIDsOfCgroup(path string) ([]int, error) {
	doing := fmt.Sprintf("listing the processes of cgroup %q", clean(path))
	all, err := h.hierarchies()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	found := false
	var s skips
	for _, m := range all {
		folder, ok := m.folder(path)
		if within(path, m.point) {
			folder, ok = filepath.Clean(path), true
		}
		if !ok {
			continue
		}
		if st, err := os.Stat(folder); err != nil || !st.IsDir() {
			s.add(err)
			continue
		}
		found = true
		if pids := pidsBelow(folder, &s); len(pids) > 0 {
			return pids, s.err(doing)
		}
	}
	if !found {
		return nil, fmt.Errorf("%s: no mounted hierarchy has it, see /proc/PID/cgroup for paths: %w", doing, fs.ErrNotExist)
	}
	return nil, s.err(doing)
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	path = filepath.Clean(path)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// pidsBelow collects cgroup.procs of a folder and all below it.
func pidsBelow(folder string, s *skips) []int {
	seen := map[int]bool{}
	_ = filepath.WalkDir(folder, func(dir string, d fs.DirEntry, err error) error {
		if err != nil {
			s.add(err)
			return nil
		}
		if !d.IsDir() {
			return nil
		}
		name := filepath.Join(dir, "cgroup.procs")
		b, _, err := readSmall(name, 4<<20)
		if err != nil {
			s.add(err) // a threaded cgroup has none: its processes are listed above it
			return nil
		}
		for i, f := range strings.Fields(string(b)) {
			pid, err := strconv.ParseUint(f, 10, 31)
			if err != nil {
				s.add(malformed(name, i+1, "a pid", f))
				continue
			}
			if pid != 0 { // 0: a process outside of this pid namespace
				seen[int(pid)] = true
			}
		}
		return nil
	})
	pids := make([]int, 0, len(seen))
	for pid := range seen {
		pids = append(pids, pid)
	}
	sort.Ints(pids)
	return pids
}
