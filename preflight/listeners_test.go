// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// row makes a line of a TCP table; words of the address are written as the
// kernel does, in the byte order of the machine.
func row(addr string, port uint16, state, rx int, inode uint64) string {
	a := netip.MustParseAddr(addr)
	text, b := "", a.AsSlice()
	for i := 0; i < len(b); i += 4 {
		text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b[i:]))
	}
	return fmt.Sprintf("   0: %s:%04X 00000000:0000 %02X 00000000:%08X 00:00000000 00000000     0        0 %d 1 0 100 0 0 10 0\n",
		text, port, state, rx, inode)
}

func TestListeners(t *testing.T) {
	tr := newTree(t)
	tr.add(proc{pid: 10, comm: "api", ns: 100, sockets: []uint64{501, 777}})
	tr.add(proc{pid: 11, comm: "orphan", ns: 100, sockets: []uint64{501, 501, 502}})
	tr.add(proc{pid: 12, comm: "pod", ns: 200, sockets: []uint64{503}})
	tr.add(proc{pid: 13, comm: "elsewhere", ns: 300, sockets: []uint64{504}})
	tr.write("10/net/tcp", heading+row("127.0.0.1", 8000, 10, 7, 501)+row("127.0.0.1", 8000, 1, 99, 777)+row("10.0.0.1", 9, 6, 0, 0))
	tr.write("10/net/tcp6", heading+row("::", 8001, 10, 0, 502)+row("::ffff:10.0.0.2", 8002, 10, 0, 0))
	tr.write("12/net/tcp", heading+row("0.0.0.0", 8000, 10, 1, 503)) // no tcp6: IPv6 off
	tr.write("13/net/tcp", heading+row("0.0.0.0", 8000, 10, 1, 504))

	got, err := tr.host().Listeners([]int{10, 11, 12, 99})
	if err != nil {
		t.Fatal(err)
	}
	addr := func(s string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(s)} }
	want := []Listener{
		{Port: 8000, Addrs: addr("127.0.0.1"), NetNS: 100, Inode: 501, PIDs: []int{10, 11}, Depth: 7, Source: SourceProcNet},
		{Port: 8001, Addrs: addr("::"), NetNS: 100, Inode: 502, PIDs: []int{11}, Source: SourceProcNet},
		{Port: 8002, Addrs: addr("10.0.0.2"), NetNS: 100, Source: SourceProcNet},
		{Port: 8000, Addrs: addr("0.0.0.0"), NetNS: 200, Inode: 503, PIDs: []int{12}, Depth: 1, Source: SourceProcNet},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if all, err := tr.host().Listeners(nil); err != nil || len(all) != 5 {
		t.Errorf("all: %+v, %v", all, err)
	}
	if mine := HeldBy(got, []int{12}); len(mine) != 1 || mine[0].NetNS != 200 {
		t.Errorf("held by 12: %+v", mine)
	}
	if n, err := tr.host().Established(10, 8000); n != 1 || err != nil {
		t.Errorf("established: %d, %v", n, err)
	}
	if _, err := tr.host().Established(99, 8000); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("established of nobody: %v", err)
	}
}

func TestLimitBy(t *testing.T) {
	for _, c := range []struct {
		l    Listener
		want string
	}{
		{Listener{}, ""},
		{Listener{HasLimit: true, Limit: 128}, "backlog"},
		{Listener{HasLimit: true, Limit: 4096}, "somaxconn"},
	} {
		if got := c.l.LimitBy(4096); got != c.want {
			t.Errorf("%+v: got %q", c.l, got)
		}
	}
}

func TestTCPTableMalformed(t *testing.T) {
	good := row("127.0.0.1", 80, 10, 0, 5)
	for _, c := range []struct {
		name, text string
		rows, bad  int
	}{
		{"empty", "", 0, 0},
		{"heading only", heading, 0, 0},
		{"good", heading + good, 1, 0},
		{"words", heading + "hello world\n" + good, 1, 1},
		{"short", heading + good[:40] + "\n" + good, 1, 1},
		{"state not hex", heading + strings.Replace(good, " 0A ", " zz ", 1), 0, 1},
		{"state too long", heading + strings.Replace(good, " 0A ", " 00A ", 1), 0, 1},
		{"address of 3 words", heading + strings.Replace(good, ":0050", "00000000:0050", 1), 0, 1},
		{"address not hex", heading + strings.Replace(good, ":0050", "", 1), 0, 1},
		{"port too large", heading + strings.Replace(good, ":0050", ":10050", 1), 0, 1},
		{"no queue", heading + strings.Replace(good, "00000000:00000000 00:", "00000000 00:", 1), 0, 1},
		{"inode negative", heading + strings.Replace(good, " 5 1 ", " -5 1 ", 1), 0, 1},
		{"NULs", heading + "\x00\x00\x00\n", 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s skips
			rows := 0
			if err := eachTCPRow("/proc/1/net/tcp", strings.NewReader(c.text), stateListen, &s, func(tcpRow) { rows++ }); err != nil {
				t.Fatal(err)
			}
			if rows != c.rows || s.n != c.bad {
				t.Errorf("%d rows, %d bad, %v", rows, s.n, s.errs)
			}
			for _, err := range s.errs {
				if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "/proc/1/net/tcp line ") {
					t.Errorf("error %v", err)
				}
			}
		})
	}
	err := eachTCPRow("x", strings.NewReader(strings.Repeat("x", 1<<20)), stateListen, &skips{}, func(tcpRow) {})
	if err == nil {
		t.Error("a row of 1 MiB: no error")
	}
}

func TestSocketInode(t *testing.T) {
	for link, want := range map[string]uint64{
		"socket:[12]": 12, "socket:[x]": 0, "socket:[12": 0, "socket:": 0, "": 0, "pipe:[12]": 0, "socket:[99999999999999999999]": 0,
	} {
		if got, ok := socketInode([]byte(link)); got != want || ok != (want != 0) {
			t.Errorf("%q: %d, %v", link, got, ok)
		}
	}
}

// diagMessage wraps a body as a netlink message.
func diagMessage(kind uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(append(b, make([]byte, 10)...), body...)
}

func TestParseDiag(t *testing.T) {
	sock := make([]byte, lenDiagMsg)
	sock[0] = unix.AF_INET6
	binary.BigEndian.PutUint16(sock[4:], 8000)
	binary.NativeEndian.PutUint32(sock[56:], 3)
	binary.NativeEndian.PutUint32(sock[60:], 128)
	binary.NativeEndian.PutUint32(sock[68:], 42)
	sock = append(sock, 5, 0, diagSKV6Only, 0, 1, 0, 0, 0)
	sock = append(sock, 14, 0, diagULPInfo, 0, 10, 0, ulpName, 0, 'm', 'p', 't', 'c', 'p', 0)
	done := diagMessage(unix.NLMSG_DONE, []byte{0, 0, 0, 0})
	noent := diagMessage(unix.NLMSG_ERROR, []byte{0xfe, 0xff, 0xff, 0xff})
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the literals are little-endian")
	}
	cut := diagMessage(sockDiagByFamily, sock)
	binary.NativeEndian.PutUint32(cut, 4000)
	for _, c := range []struct {
		name  string
		b     []byte
		socks int
		done  bool
		err   error
	}{
		{"nothing", nil, 0, false, nil},
		{"a few bytes", []byte{1, 2, 3}, 0, false, nil},
		{"one and the end", append(append(diagMessage(sockDiagByFamily, sock), 0, 0), done...), 1, true, nil},
		{"end without status", diagMessage(unix.NLMSG_DONE, nil), 0, true, nil},
		{"not offered", noent, 0, true, errors.ErrUnsupported},
		{"refused", diagMessage(unix.NLMSG_ERROR, []byte{0xff, 0xff, 0xff, 0xff}), 0, true, fs.ErrPermission},
		{"longer than the datagram", cut, 0, true, ErrMalformed},
		{"length zero", make([]byte, 16), 0, true, ErrMalformed},
		{"short socket", diagMessage(sockDiagByFamily, sock[:71]), 0, true, ErrMalformed},
		{"attribute too long", diagMessage(sockDiagByFamily, append(sock[:lenDiagMsg:lenDiagMsg], 99, 0, 11, 0)), 1, false, nil},
		{"another kind", diagMessage(77, sock), 0, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var socks []diagSock
			done, err := parseDiag(c.b, func(s diagSock) { socks = append(socks, s) })
			if done != c.done || !errors.Is(err, c.err) || len(socks) != c.socks {
				t.Fatalf("got %+v, %v, %v", socks, done, err)
			}
		})
	}
	got, err := parseDiagSock(sock)
	want := diagSock{local: netip.MustParseAddrPort("[::]:8000"), v6: true, v6only: true, mptcp: true, rqueue: 3, wqueue: 128, inode: 42}
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzParseDiag(f *testing.F) {
	f.Add(diagMessage(sockDiagByFamily, make([]byte, lenDiagMsg+8)))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parseDiag(b, func(diagSock) {}) })
}

func FuzzTCPTable(f *testing.F) {
	f.Add(heading + row("::1", 80, 10, 0, 5))
	f.Fuzz(func(_ *testing.T, text string) {
		_ = eachTCPRow("tcp", strings.NewReader(text), stateListen, &skips{}, func(tcpRow) {})
	})
}

// listen opens a listener with or without MPTCP.
func listen(t *testing.T, addr string, mptcp bool) *net.TCPListener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(mptcp)
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		t.Skipf("listening on %s: %v", addr, err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// portOf returns the port of a listener.
func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// hasMPTCP reports whether the kernel gives MPTCP sockets.
func hasMPTCP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

func TestRealListeners(t *testing.T) {
	h := Host{}
	somaxconn, err := h.Somaxconn(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, addr string
		mptcp      bool
	}{
		{"v4", "127.0.0.1:0", false},
		{"v6", "[::1]:0", false},
		{"both", "[::]:0", false},
		{"MPTCP v4", "127.0.0.1:0", true},
		{"MPTCP both", "[::]:0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.mptcp && !hasMPTCP() {
				t.Skip("this kernel gives no MPTCP sockets")
			}
			l := listen(t, c.addr, c.mptcp)
			for range 3 { // none is accepted
				conn, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			var got Listener
			for range 100 { // the last handshake may still be under way
				got = find(t, h, []int{os.Getpid()}, portOf(l))
				if got.Depth == 3 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if got.Depth != 3 || !got.HasLimit || got.Limit != somaxconn || got.LimitBy(somaxconn) != "somaxconn" ||
				got.MPTCP != c.mptcp || got.Source != SourceSockDiag || got.Cookie == 0 || got.NetNS == 0 {
				t.Errorf("got %+v", got)
			}
			if !slices.Contains(got.PIDs, os.Getpid()) {
				t.Errorf("owners %v", got.PIDs)
			}
			if dual := len(got.Addrs) == 2; dual != strings.HasPrefix(c.addr, "[::]") {
				t.Errorf("addresses %v", got.Addrs)
			}
			// The poorer rung sees the same socket.
			var s skips
			poor, err := h.procListeners(os.Getpid(), &s)
			i := slices.IndexFunc(poor, func(p Listener) bool { return p.Port == got.Port })
			if err != nil || s.n != 0 || i < 0 || poor[i].Depth != 3 || poor[i].Inode != got.Inode || poor[i].Addrs[0] != got.Addrs[0] {
				t.Errorf("from /proc: %+v, %v, %v", poor, err, s.errs)
			}
			if n, err := h.Established(os.Getpid(), got.Port); n != 3 || err != nil {
				t.Errorf("%d established, %v", n, err)
			}
		})
	}
}

// find returns the listener with the port.
func find(t *testing.T, h Host, pids []int, port uint16) Listener {
	t.Helper()
	ls, err := h.Listeners(pids)
	var part *Incomplete
	if err != nil && !errors.As(err, &part) {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ls, func(l Listener) bool { return l.Port == port })
	if i < 0 {
		t.Fatalf("port %d is not among %+v (%v)", port, ls, err)
	}
	return ls[i]
}

func TestRealBacklog(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 5)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	got := find(t, Host{}, []int{os.Getpid()}, uint16(sa.(*unix.SockaddrInet4).Port))
	if got.Limit != 5 || got.LimitBy(4096) != "backlog" || got.MPTCP {
		t.Errorf("got %+v", got)
	}
}

// otherNetNS starts a process in a network namespace of its own.
func otherNetNS(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Skipf("starting a process in its own network namespace: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func TestOtherNamespace(t *testing.T) {
	pid := otherNetNS(t)
	h := Host{}
	var l *net.TCPListener
	if err := h.InNetNS(pid, func() error {
		l = listen(t, ":0", hasMPTCP())
		return os.WriteFile("/proc/sys/net/core/somaxconn", []byte("77"), 0)
	}); err != nil {
		t.Skipf("setting up another namespace: %v", err)
	}
	if n, err := h.Somaxconn(pid); n != 77 || err != nil {
		t.Errorf("somaxconn there: %d, %v", n, err)
	}
	if n, err := h.Somaxconn(os.Getpid()); n == 77 || err != nil {
		t.Errorf("somaxconn here: %d, %v", n, err)
	}
	got := find(t, h, []int{pid}, portOf(l))
	if !slices.Contains(got.PIDs, os.Getpid()) || got.MPTCP != hasMPTCP() || got.Source != SourceSockDiag {
		t.Errorf("got %+v", got)
	}
	ns, err := readNSLink(h.pidPath(pid, "ns", "net"))
	if err != nil || got.NetNS != ns {
		t.Errorf("namespace %d, want %d, %v", got.NetNS, ns, err)
	}
	here, err := h.Listeners([]int{os.Getpid()})
	if slices.ContainsFunc(here, func(x Listener) bool { return x.Inode == got.Inode }) {
		t.Errorf("a socket of the other namespace shows here: %+v, %v", here, err)
	}
}
