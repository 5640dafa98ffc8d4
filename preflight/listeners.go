// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sort"

	"golang.org/x/sys/unix"
)

// Where a [Listener] was read from, the better first.
const (
	SourceSockDiag = "sock_diag"     // in the namespace: everything
	SourceProcNet  = "/proc/PID/net" // without a right: no limit, no MPTCP, no cookie
)

// Listener is one listening TCP socket.
type Listener struct {
	Port   uint16
	Addrs  []netip.Addr // "::" is followed by "0.0.0.0" where it takes IPv4 too
	NetNS  uint64       // inode of its network namespace, 0 where unknown
	Inode  uint64       // of the socket that processes hold
	Cookie uint64       // of the TCP socket (of MPTCP: its subflow), as bpf_get_socket_cookie gives it; 0 from SourceProcNet
	PIDs   []int        // every process that holds it, in order; see Host.Listeners
	MPTCP  bool         // false from SourceProcNet even for MPTCP
	Depth  int          // connections waiting to be accepted

	HasLimit bool // false from SourceProcNet
	Limit    int  // of Depth: min(backlog given to listen, somaxconn at that time)
	Source   string
}

// LimitBy names what bounds the accept queue, given somaxconn of the namespace:
// "somaxconn", the application's "backlog", or "" where the limit is unknown. A
// limit equal to somaxconn counts as "somaxconn": a larger backlog is cut to it.
func (l Listener) LimitBy(somaxconn int) string {
	switch {
	case !l.HasLimit:
		return ""
	case l.Limit >= somaxconn:
		return "somaxconn"
	}
	return "backlog"
}

// HeldBy returns the listeners that at least one of the processes holds.
func HeldBy(ls []Listener, pids []int) []Listener {
	var out []Listener
	for _, l := range ls {
		if slices.ContainsFunc(l.PIDs, func(p int) bool { return slices.Contains(pids, p) }) {
			out = append(out, l)
		}
	}
	return out
}

// Listeners returns the listening TCP sockets of every network namespace that the
// processes live in, by namespace and port; nil means all processes of the host.
// A socket's PIDs are looked for among all processes of the host, so an orphan
// that inherited it shows too.
//
// In each namespace the sockets come from a sock_diag dump of listeners alone,
// taken on a thread that entered it (CAP_SYS_ADMIN, except for one's own), else
// from /proc/PID/net/tcp and tcp6. An MPTCP listener (Go's default since 1.24)
// appears as its TCP subflow. Since Linux 5.11 that carries the inode and the
// queue of the MPTCP socket; where it does not, the MPTCP socket of the same
// address gives the inode.
//
// An [Incomplete] error comes with a valid list; PIDs then miss the processes
// whose descriptors may not be read.
func (h Host) Listeners(pids []int) ([]Listener, error) {
	everyone, err := h.pids()
	if err != nil {
		return nil, fmt.Errorf("listing listeners: %w", err)
	}
	if pids == nil {
		pids = everyone
	}
	var s skips
	var out []Listener
	for _, group := range h.groupByNetNS(pids, &s) {
		out = append(out, h.listenersOf(group, &s)...)
	}
	h.findOwners(everyone, out, &s)
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].NetNS != out[j].NetNS {
			return out[i].NetNS < out[j].NetNS
		}
		return out[i].Port < out[j].Port
	})
	return out, s.err("listing listeners")
}

// netNSGroup is a network namespace and processes in it.
type netNSGroup struct {
	ns   uint64 // 0 where unknown
	pids []int
}

// maxDoors is how many processes of a namespace are kept as ways into it, for
// the case that some end meanwhile.
const maxDoors = 8

// groupByNetNS sorts the processes by namespace. Those whose namespace may not
// be known are told apart by the inode of their TCP table.
func (h Host) groupByNetNS(pids []int, s *skips) []*netNSGroup {
	type key struct{ ns, table uint64 }
	nets := h.newNetNSResolver()
	groups := map[key]*netNSGroup{}
	var out []*netNSGroup
	for _, pid := range pids {
		ns, err := nets.of(pid)
		k := key{ns: ns}
		if errors.Is(err, fs.ErrPermission) {
			k.table, err = inode(h.pidPath(pid, "net", "tcp"))
		}
		if err != nil {
			s.add(err)
			continue
		}
		g := groups[k]
		if g == nil {
			g = &netNSGroup{ns: ns}
			groups[k] = g
			out = append(out, g)
		}
		if len(g.pids) < maxDoors {
			g.pids = append(g.pids, pid)
		}
	}
	return out
}

// listenersOf reads one namespace through the first process that is still there.
func (h Host) listenersOf(g *netNSGroup, s *skips) []Listener {
	var last error
	for _, pid := range g.pids {
		ls, refused := h.diagListeners(pid)
		if refused != nil {
			if ls, last = h.procListeners(pid, s); last != nil {
				continue
			}
			s.add(refused)
		}
		for i := range ls {
			ls[i].NetNS = g.ns
		}
		return ls
	}
	s.add(last)
	return nil
}

// diagListeners takes the listeners of pid's namespace from sock_diag.
func (h Host) diagListeners(pid int) ([]Listener, error) {
	type at struct {
		local netip.AddrPort
		v6    bool
	}
	var socks []diagSock
	outer := map[at]uint32{} // inodes of MPTCP sockets
	err := h.InNetNS(pid, func() error {
		err := diagBoth(unix.IPPROTO_TCP, 1<<stateListen, 0, func(s diagSock) { socks = append(socks, s) })
		if err != nil || !slices.ContainsFunc(socks, func(s diagSock) bool { return s.mptcp }) {
			return err
		}
		err = diagBoth(unix.IPPROTO_MPTCP, 1<<stateListen, 0, func(s diagSock) { outer[at{s.local, s.v6}] = s.inode })
		if errors.Is(err, errors.ErrUnsupported) {
			return nil // before 5.9: the subflow's inode has to do
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dumping the listeners of process %d: %w", pid, err)
	}
	out := make([]Listener, 0, len(socks))
	for _, s := range socks {
		l := Listener{
			Port: s.local.Port(), Addrs: []netip.Addr{s.local.Addr()}, Inode: uint64(s.inode), Cookie: s.cookie, MPTCP: s.mptcp,
			Depth: int(s.rqueue), HasLimit: true, Limit: int(s.wqueue), Source: SourceSockDiag,
		}
		if s.v6 && !s.v6only && s.local.Addr() == netip.IPv6Unspecified() {
			l.Addrs = append(l.Addrs, netip.IPv4Unspecified())
		}
		if ino := outer[at{s.local, s.v6}]; s.mptcp && ino != 0 {
			l.Inode = uint64(ino)
		}
		out = append(out, l)
	}
	return out, nil
}

// diagBoth dumps IPv4 and IPv6; a kernel without IPv6 has none.
func diagBoth(protocol, states uint32, port uint16, f func(diagSock)) error {
	if err := diagDump(unix.AF_INET, protocol, states, port, f); err != nil {
		return err
	}
	err := diagDump(unix.AF_INET6, protocol, states, port, f)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// procListeners takes the listeners of pid's namespace from its TCP tables. They
// do not tell whether "::" takes IPv4 too: it is said not to.
func (h Host) procListeners(pid int, s *skips) ([]Listener, error) {
	var out []Listener
	err := h.eachProcTCP(pid, stateListen, s, func(r tcpRow, _ bool) {
		out = append(out, Listener{
			Port: r.local.Port(), Addrs: []netip.Addr{r.local.Addr()}, Inode: r.inode, Depth: int(r.depth), Source: SourceProcNet,
		})
	})
	return out, err
}
