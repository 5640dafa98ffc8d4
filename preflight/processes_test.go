// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProcesses(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	tr := newTree(t)
	tr.add(proc{
		pid: 70, ppid: 1, comm: "a) R 9 (b\n\x1b[31m", exe: "/usr/bin/vllm (deleted)", ns: 4026531992,
		args:   []string{"vllm", "serve", "a\tb\x1b]0;x\a", "--api-key", "sk-1", "--port=8000", "--hf-token=hf_2", "nats://u:p@h/x"},
		cgroup: "4:memory:/kubepods/pod1/" + id + "\n1:cpu:/\n0::/\n",
	})
	tr.add(proc{pid: 7, ppid: 2, comm: "kworker"})
	tr.write("8/cmdline", "half a process")
	tr.write("bus/x", "")

	procs, err := tr.host().Processes()
	if err != nil {
		t.Fatal(err)
	}
	if len(procs) != 2 || procs[0].PID != 7 || procs[1].PID != 70 {
		t.Fatalf("got %+v", procs)
	}
	want := Process{
		PID: 70, TGID: 70, PPID: 1, State: 'S', Comm: "a) R 9 (b??[31m", Exe: "/usr/bin/vllm (deleted)",
		Args: []string{"vllm", "serve", "a?b?]0;x?", "--api-key", "[redacted]", "--port=8000", "--hf-token=[redacted]", "nats://[redacted]@h/x"},
		UID:  1000, Cgroup: "/kubepods/pod1/" + id, Container: id, NetNS: 4026531992,
		StartTicks: 12345, Start: time.Unix(1700000123, 450e6),
	}
	if !reflect.DeepEqual(procs[1], want) {
		t.Errorf("got  %+v\nwant %+v", procs[1], want)
	}
	if p := procs[0]; p.Exe != "" || p.Args != nil || p.NetNS != 0 || p.Denied != nil {
		t.Errorf("kernel thread: %+v", p)
	}
}

func TestLongCommandLine(t *testing.T) {
	tr := newTree(t)
	tr.add(proc{pid: 5, comm: "x", args: []string{"x", strings.Repeat("\x01y", 1<<20)}})
	procs, err := tr.host().Processes()
	if err != nil {
		t.Fatal(err)
	}
	if p := procs[0]; len(p.Cmdline()) > maxCmdline || !p.ArgsCut || strings.ContainsRune(p.Cmdline(), 1) {
		t.Errorf("cmdline of %d bytes, cut %v", len(p.Cmdline()), p.ArgsCut)
	}
}

func TestProcessesMalformed(t *testing.T) {
	good := "5 (x) S 1 " + strings.Repeat("0 ", 17) + "1 0\n"
	status := "Tgid:\t5\nUid:\t1\t2\t3\t4\n"
	for _, c := range []struct{ name, file, text, want string }{
		{"empty stat", "stat", "", "stat line 1"},
		{"no comm", "stat", "5 x S 1", "stat line 1"},
		{"reversed parentheses", "stat", ")(", "stat line 1"},
		{"short stat", "stat", "5 (x) S 1 2 3", "stat line 1"},
		{"long state", "stat", strings.Replace(good, "S", "SS", 1), "stat line 1"},
		{"no parent", "stat", strings.Replace(good, "S 1", "S -1", 1), "field 4"},
		{"no start", "stat", "5 (x) S 1 " + strings.Repeat("0 ", 17) + "z 0\n", "field 22"},
		{"empty status", "status", "", "Tgid and Uid"},
		{"uid of two", "status", "Tgid:\t5\nUid:\t1\t2\n", "status line 2"},
		{"uid too large", "status", "Tgid:\t5\nUid:\t1\t4294967296\t3\t4\n", "status line 2"},
		{"tgid a word", "status", "Tgid:\tx\nUid:\t1\t2\t3\t4\n", "status line 1"},
		{"tgid empty", "status", "Tgid:\nUid:\t1\t2\t3\t4\n", "status line 1"},
		{"cgroup", "cgroup", "0::/\nnonsense\n", "cgroup line 2"},
		{"ns", "ns/net", "net:[x]", "ns/net"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTree(t)
			tr.add(proc{pid: 6, comm: "fine"})
			tr.write("5/stat", good)
			tr.write("5/status", status)
			tr.write("5/cmdline", "x\x00")
			tr.write("5/cgroup", "0::/\n")
			if c.file == "ns/net" {
				tr.link("5/ns/net", c.text)
			} else {
				tr.write("5/"+c.file, c.text)
			}
			procs, err := tr.host().Processes()
			if len(procs) == 0 || procs[len(procs)-1].PID != 6 {
				t.Errorf("the other process is missing: %+v", procs)
			}
			var part *Incomplete
			if !errors.As(err, &part) || !errors.Is(err, ErrMalformed) {
				t.Fatalf("got %v", err)
			}
			if s := err.Error(); !strings.Contains(s, c.want) || !strings.Contains(s, "mounted procfs") {
				t.Errorf("error names no place or remedy: %s", s)
			}
		})
	}
}

func TestNoProcfs(t *testing.T) {
	if _, err := (Host{Root: filepath.Join(t.TempDir(), "none")}).Processes(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestIncompleteKeepsThePermissionError(t *testing.T) {
	var s skips
	s.add(nil)
	s.add(fs.ErrNotExist)
	if s.err("x") != nil {
		t.Error("what has gone is no error")
	}
	for range 20 {
		s.add(ErrMalformed)
	}
	s.add(&fs.PathError{Op: "open", Path: "/proc/1/exe", Err: syscall.EACCES})
	err := s.err("looking")
	var part *Incomplete
	if !errors.As(err, &part) || part.Skipped != 21 || len(part.Errs) != maxErrs || !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), "run as root") {
		t.Errorf("no remedy: %v", err)
	}
}

func TestSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"--api-key\x00sk":                    "--api-key [redacted]",
		"--api_key=sk=1":                     "--api_key=[redacted]",
		"env\x00OPENAI_API_KEY=sk\x00vllm":   "env OPENAI_API_KEY=[redacted] vllm",
		"--api-key\x00--port\x008":           "--api-key --port 8",
		"--tokenizer\x00t\x00--max-tokens=5": "--tokenizer t --max-tokens=5",
		"http://h/a@b":                       "http://h/a@b",
		"VLLM::EngineCore\x00\x00  \x00\x00": "VLLM::EngineCore",
		"":                                   "",
		"\xff\xfe":                           "??",
		"a\u202eb\u2028c":                    "a?b?c",
	} {
		if got := strings.Join(splitCmdline([]byte(in)), " "); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestRealProcesses(t *testing.T) {
	procs, err := Host{}.Processes()
	var part *Incomplete
	if err != nil && !errors.As(err, &part) {
		t.Fatal(err)
	}
	for _, p := range procs {
		if p.PID != os.Getpid() {
			continue
		}
		if p.PPID != os.Getppid() || p.UID != uint32(os.Geteuid()) || p.NetNS == 0 || p.Exe == "" || len(p.Args) == 0 {
			t.Errorf("this process: %+v", p)
		}
		if age := time.Since(p.Start); age < -2*time.Second || age > time.Hour {
			t.Errorf("started %v ago", age)
		}
		return
	}
	t.Error("this process is not listed")
}

// TestUnprivileged runs the others that read the real host as nobody.
func TestUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changing the user needs root")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^(TestReal|TestUnprivilegedChild)", "-test.v")
	cmd.Env = append(os.Environ(), "PREFLIGHT_UNPRIVILEGED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) {
		t.Skipf("running the test as nobody: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestUnprivilegedChild") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func TestUnprivilegedChild(t *testing.T) {
	if os.Getenv("PREFLIGHT_UNPRIVILEGED") == "" {
		t.Skip("started by TestUnprivileged")
	}
	h := Host{}
	procs, err := h.Processes()
	if len(procs) < 2 || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%d processes, %v", len(procs), err)
	}
	tr := newTree(t)
	tr.write("self/mountinfo", "22 1 0:1 / "+tr.root+" rw - proc proc rw,hidepid=invisible\n")
	if _, err := tr.host().Processes(); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "hidepid") {
		t.Errorf("hidepid: %v", err)
	}
	parent := os.Getppid()
	for _, p := range procs {
		if p.PID == parent && (p.Exe != "" || p.NetNS == 0 || len(p.Denied) == 0 || p.Comm == "") {
			t.Errorf("parent: %+v", p)
		}
	}
	if _, err := h.Listeners(nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("listeners: %v", err)
	}
	if l, err := h.Limits(parent); l.OpenFiles.Soft == 0 || err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("limits: %+v, %v", l, err)
	}
	if n, err := h.Somaxconn(parent); err != nil || n == 0 {
		t.Errorf("somaxconn in the own namespace: %d, %v", n, err)
	}
	if c, err := h.NetCounters(parent); err != nil || len(c) == 0 {
		t.Errorf("counters: %v, %v", c, err)
	}
	if r, err := h.Roles(parent, nil); err != nil || len(r) == 0 || r[0].Counted == 0 {
		t.Errorf("roles: %v, %v", r, err)
	}
}
