// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
)

// TCP states as the kernel numbers them (net/tcp_states.h).
const (
	stateEstablished = 1
	stateListen      = 10
)

// tcpRow is one line of /proc/PID/net/tcp or tcp6.
type tcpRow struct {
	local netip.AddrPort
	state uint8
	depth uint32 // of a listener: connections waiting (rx_queue); tx_queue is always 0
	inode uint64 // 0 where the kernel shows none
}

// eachTCPRow calls f for the rows of a table in that state; the rows of other
// states cost no more than finding the state. Malformed rows are counted into s
// and skipped.
func eachTCPRow(name string, r io.Reader, state uint8, s *skips, f func(tcpRow)) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 16<<10), 64<<10)
	for line := 1; sc.Scan(); line++ {
		if line == 1 { // the heading
			continue
		}
		if len(sc.Bytes()) == 0 {
			continue
		}
		st, ok := rowState(sc.Bytes())
		if !ok {
			s.add(malformed(name, line, "a row of the TCP table", sc.Text()))
			continue
		}
		if st != state {
			continue
		}
		row, ok := parseTCPRow(sc.Bytes())
		if !ok {
			s.add(malformed(name, line, "a row of the TCP table", sc.Text()))
			continue
		}
		f(row)
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// rowState finds the state, the fourth field, without splitting the row.
func rowState(b []byte) (uint8, bool) {
	for i := 0; i < 3; i++ {
		b = bytes.TrimLeft(b, " ")
		n := bytes.IndexByte(b, ' ')
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
	}
	b = bytes.TrimLeft(b, " ")
	if len(b) < 3 || b[2] != ' ' {
		return 0, false
	}
	var out [1]byte
	_, err := hex.Decode(out[:], b[:2])
	return out[0], err == nil
}

// parseTCPRow reads "sl local remote st tx:rx tr:when retr uid timeout inode ...".
func parseTCPRow(b []byte) (tcpRow, bool) {
	f := bytes.Fields(b)
	if len(f) < 10 {
		return tcpRow{}, false
	}
	var r tcpRow
	var ok bool
	if r.local, ok = parseHexAddrPort(f[1]); !ok {
		return r, false
	}
	st, err := strconv.ParseUint(string(f[3]), 16, 8)
	if err != nil {
		return r, false
	}
	r.state = uint8(st)
	_, rx, ok := bytes.Cut(f[4], []byte(":"))
	depth, err := strconv.ParseUint(string(rx), 16, 32)
	if !ok || err != nil {
		return r, false
	}
	r.depth = uint32(depth)
	r.inode, err = strconv.ParseUint(string(f[9]), 10, 64)
	return r, err == nil
}

// parseHexAddrPort reads "0100007F:1F90" or its long form: 32-bit words of the
// address in the machine's byte order, the port as a number.
func parseHexAddrPort(b []byte) (netip.AddrPort, bool) {
	a, p, ok := bytes.Cut(b, []byte(":"))
	if !ok || len(a) != 8 && len(a) != 32 {
		return netip.AddrPort{}, false
	}
	port, err := strconv.ParseUint(string(p), 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	var raw [16]byte
	for i := 0; i < len(a); i += 8 {
		w, err := strconv.ParseUint(string(a[i:i+8]), 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		binary.NativeEndian.PutUint32(raw[i/2:], uint32(w))
	}
	addr := netip.AddrFrom16(raw)
	if len(a) == 8 {
		addr = netip.AddrFrom4([4]byte(raw[:4]))
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), true
}

// eachProcTCP walks both tables of the network namespace of pid, which anybody
// may read. A kernel without IPv6 has no tcp6.
func (h Host) eachProcTCP(pid int, state uint8, s *skips, f func(row tcpRow, v6 bool)) error {
	for _, table := range []string{"tcp", "tcp6"} {
		name := h.pidPath(pid, "net", table)
		file, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) && table == "tcp6" {
			continue
		}
		if err != nil {
			return err
		}
		err = eachTCPRow(name, file, state, s, func(r tcpRow) { f(r, table == "tcp6") })
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
