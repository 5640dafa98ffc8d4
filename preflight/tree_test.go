// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree is a procfs of plain files.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree {
	t.Helper()
	tr := tree{t, t.TempDir()}
	tr.write("stat", "cpu  1 2 3\nbtime 1700000000\nprocesses 5\n")
	return tr
}

func (tr tree) host() Host { return Host{Root: tr.root} }

func (tr tree) write(name, text string) {
	tr.t.Helper()
	file := filepath.Join(tr.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) link(name, target string) {
	tr.t.Helper()
	file := filepath.Join(tr.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.Symlink(target, file); err != nil {
		tr.t.Fatal(err)
	}
}

// proc describes a fake process.
type proc struct {
	pid, ppid int
	comm      string
	exe       string
	args      []string
	cgroup    string
	ns        uint64
	sockets   []uint64
}

func (tr tree) add(p proc) {
	tr.t.Helper()
	dir := fmt.Sprint(p.pid)
	fields := strings.Repeat("0 ", 17)
	tr.write(dir+"/stat", fmt.Sprintf("%d (%s) S %d %s12345 0 0\n", p.pid, p.comm, p.ppid, fields))
	tr.write(dir+"/status", fmt.Sprintf("Name:\t%s\nTgid:\t%d\nPPid:\t%d\nUid:\t0\t1000\t1000\t1000\n", p.comm, p.pid, p.ppid))
	text := ""
	if len(p.args) > 0 {
		text = strings.Join(p.args, "\x00") + "\x00"
	}
	tr.write(dir+"/cmdline", text)
	if p.cgroup == "" {
		p.cgroup = "0::/\n"
	}
	tr.write(dir+"/cgroup", p.cgroup)
	if p.exe != "" {
		tr.link(dir+"/exe", p.exe)
	}
	if p.ns != 0 {
		tr.link(dir+"/ns/net", fmt.Sprintf("net:[%d]", p.ns))
	}
	tr.link(dir+"/fd/0", "/dev/null")
	for i, ino := range p.sockets {
		tr.link(fmt.Sprintf("%s/fd/%d", dir, i+3), fmt.Sprintf("socket:[%d]", ino))
	}
}
