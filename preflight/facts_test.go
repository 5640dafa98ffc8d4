// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRoleOf(t *testing.T) {
	for comm, want := range map[string]string{
		"tokio-runtime-w": "tokio-runtime-w", "pool-1-thread-12": "pool-thread", "VLLM::Worker_TP0": "VLLM::Worker_TP",
		"ThreadPoolExec": "ThreadPoolExec", "12345": RoleOther, "": RoleOther, "--": RoleOther, "grpc_0_1": "grpc",
		"cuda00001400006": "cuda", "kworker/0:1H": "kworker/H", "\x1b[2Jx": "?[Jx", "a::b": "a::b",
	} {
		if got := RoleOf(comm); got != want {
			t.Errorf("%q: got %q, want %q", comm, got, want)
		}
	}
}

func TestRoleTableIsBounded(t *testing.T) {
	var table RoleTable
	seen := map[string]bool{}
	for range 2 {
		for i := range 100 {
			seen[table.Of(strings.Repeat("x", i+1))] = true
		}
	}
	if len(seen) != MaxRoles || !seen[RoleOther] || table.Folded() != 2*(100-MaxRoles+1) {
		t.Errorf("%d roles, %d folded", len(seen), table.Folded())
	}
}

func TestRoles(t *testing.T) {
	tr := newTree(t)
	for i, s := range []string{"10 20 3", "1 2 1", "0 0 0"} {
		tr.write(fmt.Sprintf("5/task/%d/comm", 5+i), fmt.Sprintf("pool-%d\n", i))
		tr.write(fmt.Sprintf("5/task/%d/schedstat", 5+i), s+"\n")
	}
	tr.write("5/task/9/comm", "main\n") // its schedstat has gone
	tr.write("5/task/10/status", "")    // has gone
	roles, err := tr.host().Roles(5, nil)
	want := []Role{
		{Name: "main", Threads: []Thread{{9, "main"}}},
		{Name: "pool", Threads: []Thread{{5, "pool-0"}, {6, "pool-1"}, {7, "pool-2"}}, Counted: 2, Sched: SchedStat{11, 22, 4}},
	}
	if !reflect.DeepEqual(roles, want) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %+v, %v", roles, err)
	}
	if d := (SchedStat{10, 20, 3}).Sub(SchedStat{1, 2, 1}); d != (SchedStat{9, 18, 2}) {
		t.Errorf("difference %+v", d)
	}
	if _, err := tr.host().Roles(6, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}

func TestSchedStatMalformed(t *testing.T) {
	for _, text := range []string{"", "1 2", "1 2 3 4", "a b c", "-1 2 3", "9223372036854775808 0 0"} {
		tr := newTree(t)
		tr.write("5/task/5/schedstat", text)
		if _, err := tr.host().SchedStat(5, 5); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "schedstat line 1") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := newTree(t).host().SchedStat(5, 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such thread: %v", err)
	}
}

func TestNetCounters(t *testing.T) {
	tr := newTree(t)
	tr.write("5/net/netstat", "TcpExt: A ListenOverflows TCPFromZeroWindowAdv\nTcpExt: 1 18446744073709551615 3\nIpExt: B\nIpExt: 4\n")
	tr.write("5/net/snmp", "Tcp: MaxConn RetransSegs\nTcp: -1 9\nUdp: RcvbufErrors\nUdp: 5\n")
	tr.write("5/net/snmp6", "Udp6RcvbufErrors                \t6\nIp6InReceives 1\n")
	got, err := tr.host().NetCounters(5)
	want := NetCounters{ListenOverflows: 1<<64 - 1, TCPFromZeroWindowAdv: 3, RetransSegs: 9, UDPRcvbufErrors: 5, UDP6RcvbufErrors: 6}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if d := got.Sub(NetCounters{RetransSegs: 2, UDPRcvbufErrors: 8}); !reflect.DeepEqual(d, NetCounters{RetransSegs: 7}) {
		t.Errorf("difference %v", d)
	}
	if _, err := tr.host().NetCounters(6); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}

func TestNetCountersMalformed(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"netstat", "TcpExt: ListenDrops\n", "netstat line 1"},
		{"netstat", "TcpExt: ListenDrops\nTcpExt: 1 2\n", "netstat line 2"},
		{"netstat", "TcpExt: ListenDrops\nIpExt: 1\n", "netstat line 2"},
		{"netstat", "TcpExt: ListenDrops\nTcpExt: x\n", "netstat line 2"},
		{"netstat", "\n\n\n", "netstat line"},
		{"snmp6", "Udp6RcvbufErrors\n", "snmp6 line 1"},
		{"snmp6", "x\nUdp6RcvbufErrors -1\n", "snmp6 line 2"},
	} {
		tr := newTree(t)
		tr.write("5/net/snmp", "Tcp: RetransSegs\nTcp: 9\n")
		tr.write("5/net/"+c.file, c.text)
		got, err := tr.host().NetCounters(5)
		if got[RetransSegs] != 9 || !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, %v", c.file, c.text, got, err)
		}
	}
}

const limitsText = `Limit                     Soft Limit           Hard Limit           Units     
Max open files            1024                 524288               files     
Max locked memory         8388608              unlimited            bytes     
`

func TestLimits(t *testing.T) {
	tr := newTree(t)
	tr.write("5/limits", limitsText)
	for i := range 1000 {
		tr.link(fmt.Sprintf("5/fd/%d", i), "/dev/null")
	}
	l, err := tr.host().Limits(5)
	want := Limits{OpenFiles: Limit{1024, 524288}, LockedMemory: Limit{8388608, Unlimited}, HasFDs: true, FDs: 1000}
	if err != nil || l != want {
		t.Errorf("got %+v, %v", l, err)
	}
	if s, ok := l.FDShare(); !ok || s != 1000./1024 {
		t.Errorf("share %v, %v", s, ok)
	}
	if n, ok := l.FDsLeft(); !ok || n != 24 {
		t.Errorf("left %v, %v", n, ok)
	}
	for _, c := range []struct {
		l    Limits
		left int
		ok   bool
	}{
		{Limits{OpenFiles: Limit{5, 5}}, 0, false},
		{Limits{OpenFiles: Limit{Unlimited, Unlimited}, HasFDs: true, FDs: 9}, 0, false},
		{Limits{OpenFiles: Limit{5, 5}, HasFDs: true, FDs: 9}, 0, true},
		{Limits{HasFDs: true, FDs: 9}, 0, true},
	} {
		if n, ok := c.l.FDsLeft(); n != c.left || ok != c.ok {
			t.Errorf("%+v: %d, %v", c.l, n, ok)
		}
	}
	if _, err := tr.host().Limits(6); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}

func TestLimitsMalformed(t *testing.T) {
	for _, text := range []string{
		"", "Max open files\nMax locked memory 1 2 bytes\n", strings.Replace(limitsText, "1024", "many", 1),
		strings.Replace(limitsText, "8388608", "-1", 1), strings.Replace(limitsText, "locked", "blocked", 1),
	} {
		if _, err := parseLimits("/proc/5/limits", text); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "/proc/5/limits line ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRealFacts(t *testing.T) {
	h, pid := Host{}, os.Getpid()
	l, err := h.Limits(pid)
	if err != nil || !l.HasFDs || l.FDs < 3 || l.OpenFiles.Soft == 0 {
		t.Errorf("limits %+v, %v", l, err)
	}
	c, err := h.NetCounters(pid)
	if _, ok := c[ListenOverflows]; !ok || err != nil {
		t.Errorf("counters %v, %v", c, err)
	}
	before, err := h.SchedStat(pid, pid)
	if err != nil {
		t.Skip(err)
	}
	time.Sleep(time.Millisecond)
	after, err := h.SchedStat(pid, pid)
	if d := after.Sub(before); err != nil || d.Run < 0 || d.Wait < 0 {
		t.Errorf("%+v then %+v, %v", before, after, err)
	}
	roles, err := h.Roles(pid, nil)
	if err != nil && !errors.As(err, new(*Incomplete)) || len(roles) == 0 {
		t.Errorf("roles %+v, %v", roles, err)
	}
}
