// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// The network counters that are read, each a total since the namespace began.
// Names are the kernel's own (/proc/net/netstat, snmp, snmp6).
const (
	ListenOverflows      = "TcpExt.ListenOverflows"      // accept queue full
	ListenDrops          = "TcpExt.ListenDrops"          // all drops at a listener, overflows included
	TCPReqQFullDrop      = "TcpExt.TCPReqQFullDrop"      // SYN queue full
	TCPReqQFullDoCookies = "TcpExt.TCPReqQFullDoCookies" // SYN queue full, cookie sent
	TCPSynRetrans        = "TcpExt.TCPSynRetrans"        // by clients in this namespace
	TCPTimeouts          = "TcpExt.TCPTimeouts"          // retransmission timer fired
	TCPBacklogDrop       = "TcpExt.TCPBacklogDrop"       // socket locked and its backlog full
	TCPAbortOnMemory     = "TcpExt.TCPAbortOnMemory"     // too many orphans or no memory
	TCPAbortOnData       = "TcpExt.TCPAbortOnData"       // closed with unread data: reset sent
	TCPFromZeroWindowAdv = "TcpExt.TCPFromZeroWindowAdv" // own window reopened
	TCPToZeroWindowAdv   = "TcpExt.TCPToZeroWindowAdv"   // own window closed
	TCPWantZeroWindowAdv = "TcpExt.TCPWantZeroWindowAdv" // own window should have closed
	TCPZeroWindowDrop    = "TcpExt.TCPZeroWindowDrop"    // data beyond a closed window
	TCPRcvQDrop          = "TcpExt.TCPRcvQDrop"          // receive queue full
	DelayedACKs          = "TcpExt.DelayedACKs"          // acknowledgements sent late on purpose
	RetransSegs          = "Tcp.RetransSegs"             // segments sent again
	OutRsts              = "Tcp.OutRsts"                 // resets sent
	EstabResets          = "Tcp.EstabResets"             // established connections that were reset
	AttemptFails         = "Tcp.AttemptFails"            // connections that never were established
	UDPRcvbufErrors      = "Udp.RcvbufErrors"            // IPv4 datagrams lost: receive buffer full
	UDPSndbufErrors      = "Udp.SndbufErrors"            // IPv4 datagrams not sent: buffer full
	UDP6RcvbufErrors     = "Udp6.RcvbufErrors"           // the same on IPv6 sockets, dual-stack ones included
	UDP6SndbufErrors     = "Udp6.SndbufErrors"
)

var wantedCounters = map[string]bool{
	ListenOverflows: true, ListenDrops: true, TCPReqQFullDrop: true, TCPReqQFullDoCookies: true,
	TCPSynRetrans: true, TCPTimeouts: true, TCPBacklogDrop: true, TCPAbortOnMemory: true, TCPAbortOnData: true,
	TCPFromZeroWindowAdv: true, TCPToZeroWindowAdv: true, TCPWantZeroWindowAdv: true, TCPZeroWindowDrop: true,
	TCPRcvQDrop: true, DelayedACKs: true, RetransSegs: true, OutRsts: true, EstabResets: true, AttemptFails: true,
	UDPRcvbufErrors: true, UDPSndbufErrors: true, UDP6RcvbufErrors: true, UDP6SndbufErrors: true,
}

// NetCounters maps the names above to totals. A counter that the kernel does not
// have is absent, not 0.
type NetCounters map[string]uint64

// Sub returns the increase of each counter that both readings have.
func (c NetCounters) Sub(earlier NetCounters) NetCounters {
	d := NetCounters{}
	for name, v := range c {
		if was, ok := earlier[name]; ok && v >= was {
			d[name] = v - was
		}
	}
	return d
}

// NetCounters reads the counters of pid's network namespace, which anybody may.
// An [Incomplete] error comes with the counters that could be read.
func (h Host) NetCounters(pid int) (NetCounters, error) {
	doing := fmt.Sprintf("reading the network counters of process %d", pid)
	c := NetCounters{}
	var s skips
	read := 0
	for _, f := range []struct {
		name  string
		parse func(NetCounters, string, string) error
	}{{"netstat", NetCounters.parsePairs}, {"snmp", NetCounters.parsePairs}, {"snmp6", NetCounters.parseColumn}} {
		name := h.pidPath(pid, "net", f.name)
		b, _, err := readSmall(name, 1<<20)
		if err != nil {
			s.add(err)
			continue
		}
		read++
		s.add(f.parse(c, name, string(b)))
	}
	if read == 0 {
		if err := s.err(doing); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", doing, fs.ErrNotExist)
	}
	return c, s.err(doing)
}

// parsePairs reads lines in pairs: "Tcp: name name", "Tcp: 1 2".
func (c NetCounters) parsePairs(file, text string) error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines)%2 != 0 {
		return malformed(file, len(lines), "pairs of lines", lines[len(lines)-1])
	}
	for i := 0; i < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		if len(names) == 0 || len(names) != len(values) || names[0] != values[0] {
			return malformed(file, i+2, "as many values as names", lines[i+1])
		}
		group := strings.TrimSuffix(names[0], ":") + "."
		for j := 1; j < len(names); j++ {
			if !wantedCounters[group+names[j]] {
				continue
			}
			n, err := strconv.ParseUint(values[j], 10, 64)
			if err != nil {
				return malformed(file, i+2, "a number for "+names[j], values[j])
			}
			c[group+names[j]] = n
		}
	}
	return nil
}

// parseColumn reads "Udp6RcvbufErrors    5".
func (c NetCounters) parseColumn(file, text string) error {
	for i, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		name, ok := strings.CutPrefix(f[0], "Udp6")
		if name = "Udp6." + name; !ok || !wantedCounters[name] {
			continue
		}
		if len(f) != 2 {
			return malformed(file, i+1, "a name and a number", line)
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return malformed(file, i+1, "a name and a number", line)
		}
		c[name] = n
	}
	return nil
}
