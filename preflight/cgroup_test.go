// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBestCgroupAndContainer(t *testing.T) {
	id := strings.Repeat("ab12", 16)
	for _, c := range []struct{ name, text, path, container string }{
		{"v2", "0::/system.slice/vllm.service\n", "/system.slice/vllm.service", ""},
		{"v2 root, v1 memory", "4:memory:/a\n1:cpu,cpuacct:/\n0::/\n", "/a", ""},
		{"v1 cpu before memory", "4:memory:/a\n1:cpu,cpuacct:/b\n", "/b", ""},
		{"only other controllers", "8:pids:/a\n", "", ""},
		{"all at the root", "1:cpu:/\n0::/\n", "/", ""},
		{"Docker with systemd", "0::/system.slice/docker-" + id + ".scope\n", "/system.slice/docker-" + id + ".scope", id},
		{"containerd", "0::/kubepods.slice/p.slice/cri-containerd-" + id + ".scope/init\n", "/kubepods.slice/p.slice/cri-containerd-" + id + ".scope/init", id},
		{"Docker without systemd", "1:cpu:/docker/" + id + "\n", "/docker/" + id, id},
		{"63 digits", "0::/docker/" + id[1:] + "\n", "/docker/" + id[1:], ""},
		{"colon in the path", "0::/a:b\n", "/a:b", ""},
		{"nothing", "", "", ""},
	} {
		g, err := parseCgroups("cgroup", []byte(c.text))
		if err != nil || bestCgroup(g) != c.path || containerID(g) != c.container {
			t.Errorf("%s: %q, %q, %v", c.name, bestCgroup(g), containerID(g), err)
		}
	}
	for _, bad := range []string{"x", "0:", "0::", "0::relative", "1:cpu:/\n\x00\n"} {
		if _, err := parseCgroups("/proc/5/cgroup", []byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestMounts(t *testing.T) {
	got, err := parseMounts("mountinfo", []byte(
		"36 35 0:1 / /a\\040b rw shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct\n37 35 0:2 /pod /c rw - cgroup2 none\n"))
	want := []mount{{"/", "/a b", "cgroup", "rw,cpu,cpuacct"}, {"/pod", "/c", "cgroup2", ""}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"x\n", "36 35 0:1 / /a rw shared:1 cgroup cgroup rw\n", "36 35 - x y\n", " - \n"} {
		if _, err := parseMounts("mountinfo", []byte(bad)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "mountinfo line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for in, want := range map[string]string{`a\040b`: "a b", `a\`: `a\`, `a\04`: `a\04`, `a\999b`: `a\999b`, `\134`: `\`} {
		if got := unescape(in); got != want {
			t.Errorf("%q: got %q", in, got)
		}
	}
}

// hybrid adds a v1 cpu and a v2 hierarchy; the v2 one is mounted from /pod.
func hybrid(t *testing.T) (tr tree, v1, v2 string) {
	tr = newTree(t)
	v1, v2 = filepath.Join(tr.root, "cg", "cpu"), filepath.Join(tr.root, "cg", "unified")
	tr.write("self/mountinfo", "1 0 0:1 / "+v1+" rw - cgroup c rw,cpu,cpuacct\n2 0 0:2 /pod "+v2+" rw - cgroup2 c rw\n")
	tr.write("cg/cpu/cgroup.procs", "1\n")
	tr.write("cg/cpu/a/cgroup.procs", "5\n0\n6\n")
	tr.write("cg/cpu/a/b/cgroup.procs", "7\n5\n")
	tr.write("cg/unified/cgroup.procs", "")
	tr.write("cg/unified/x/cgroup.procs", "9\n")
	return tr, v1, v2
}

func TestPIDsOfCgroup(t *testing.T) {
	tr, v1, v2 := hybrid(t)
	for _, c := range []struct {
		path string
		want []int
		err  error
	}{
		{"/a", []int{5, 6, 7}, nil},
		{"/a/b", []int{5, 7}, nil},
		{v1 + "/a/b", []int{5, 7}, nil},
		{v2 + "/x", []int{9}, nil},
		{"/pod/x", []int{9}, nil},
		{"/x", nil, fs.ErrNotExist},
		{"/none", nil, fs.ErrNotExist},
		{"/../../etc", nil, fs.ErrNotExist},
		{v1 + "/../../..", nil, fs.ErrNotExist},
		{"", nil, fs.ErrNotExist},
	} {
		got, err := tr.host().PIDsOfCgroup(c.path)
		if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.path, got, err)
		}
	}
	tr.write("cg/cpu/a/b/cgroup.procs", "7\nx\n")
	if got, err := tr.host().PIDsOfCgroup("/a"); !slices.Equal(got, []int{5, 6, 7}) || !errors.Is(err, ErrMalformed) {
		t.Errorf("malformed: %v, %v", got, err)
	}
}

func TestCgroupCPU(t *testing.T) {
	tr, _, _ := hybrid(t)
	tr.write("5/cgroup", "1:cpu,cpuacct:/a/b\n0::/pod/x\n")
	tr.write("cg/cpu/a/b/cpu.cfs_quota_us", "-1\n")
	tr.write("cg/cpu/a/b/cpu.cfs_period_us", "100000\n")
	tr.write("cg/cpu/a/b/cpu.shares", "2048\n")
	tr.write("cg/cpu/a/b/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
	tr.write("cg/cpu/a/cpu.cfs_quota_us", "50000\n")
	tr.write("cg/cpu/a/cpu.cfs_period_us", "100000\n")
	tr.write("cg/cpu/a/cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 5000\n")
	got, err := tr.host().CgroupCPU(5)
	want := []CPUControl{
		{Path: "/a/b", Version: 1, HasWeight: true, Weight: 2048, HasThrottle: true},
		{Path: "/a", Version: 1, HasQuota: true, Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond, HasThrottle: true, Periods: 10, Throttled: 4, ThrottledBy: 5 * time.Microsecond},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("v1: %+v, %v", got, err)
	}
	if l, ok := Tightest(got); !ok || l.Path != "/a" {
		t.Errorf("tightest %+v", l)
	}

	tr.write("6/cgroup", "0::/pod/x\n")
	tr.write("cg/unified/x/cpu.max", "max 100000\n")
	tr.write("cg/unified/x/cpu.weight", "79\n")
	tr.write("cg/unified/x/cpu.stat", "usage_usec 1\nnr_periods 7\nnr_throttled 2\nthrottled_usec 3\n")
	tr.write("cg/unified/cpu.max", "600000 100000\n")
	tr.write("cg/unified/cpu.stat", "usage_usec 1\n")
	got, err = tr.host().CgroupCPU(6)
	want = []CPUControl{
		{Path: "/pod/x", Version: 2, HasWeight: true, Weight: 79, HasThrottle: true, Periods: 7, Throttled: 2, ThrottledBy: 3 * time.Microsecond},
		{Path: "/pod", Version: 2, HasQuota: true, Quota: 600 * time.Millisecond, Period: 100 * time.Millisecond},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("v2: %+v, %v", got, err)
	}
	if l, ok := Tightest(got); !ok || l.Path != "/pod" {
		t.Errorf("tightest %+v", l)
	} else if cores, ok := l.Cores(); !ok || cores != 6 {
		t.Errorf("cores %v", cores)
	}
	if _, ok := Tightest(nil); ok {
		t.Error("the tightest of none")
	}
	if _, err := tr.host().CgroupCPU(77); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}

func TestCgroupCPUMalformed(t *testing.T) {
	for _, c := range []struct{ file, text string }{
		{"cpu.max", "600000"},
		{"cpu.max", "x 100000"},
		{"cpu.max", "600000 -1"},
		{"cpu.max", ""},
		{"cpu.weight", "heavy"},
		{"cpu.stat", "nr_periods x\n"},
		{"cpu.stat", "nr_periods\n"},
		{"cpu.stat", "throttled_usec 18446744073709551615\n"},
	} {
		tr, _, _ := hybrid(t)
		tr.write("6/cgroup", "0::/pod/x\n")
		for name, text := range map[string]string{"cpu.max": "max 100000\n", "cpu.weight": "100\n", "cpu.stat": "nr_periods 1\n"} {
			tr.write("cg/unified/x/"+name, text)
		}
		tr.write("cg/unified/x/"+c.file, c.text)
		got, err := tr.host().CgroupCPU(6)
		if len(got) != 1 || !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.file+" line ") {
			t.Errorf("%s %q: %+v, %v", c.file, c.text, got, err)
		}
	}
}

func TestRealCgroup(t *testing.T) {
	h := Host{}
	procs, _ := h.Processes()
	i := slices.IndexFunc(procs, func(p Process) bool { return p.PID == os.Getpid() })
	if i < 0 {
		t.Fatal("this process is not listed")
	}
	pids, err := h.PIDsOfCgroup(procs[i].Cgroup)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no cgroup file system in sight: %v", err)
	}
	if !slices.Contains(pids, os.Getpid()) {
		t.Errorf("%s holds %v, %v", procs[i].Cgroup, pids, err)
	}
	if levels, err := h.CgroupCPU(os.Getpid()); errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	} else if err != nil && !errors.As(err, new(*Incomplete)) {
		t.Errorf("%+v, %v", levels, err)
	}
}
