// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Established counts the TCP connections in state ESTABLISHED whose local port is
// port, in the network namespace of pid: accepted ones and those that still wait
// in the accept queue, IPv4 and IPv6, each MPTCP subflow as one. Where both ends
// are in that namespace only the end that has the port counts. The source is
// sock_diag, which filters in the kernel, else /proc/PID/net/tcp and tcp6; an
// [Incomplete] error says that rows of these were unreadable.
func (h Host) Established(pid int, port uint16) (int, error) {
	doing := fmt.Sprintf("counting the connections of port %d", port)
	n := 0
	refused := h.InNetNS(pid, func() error {
		return diagBoth(unix.IPPROTO_TCP, 1<<stateEstablished, port, func(s diagSock) {
			if s.local.Port() == port {
				n++
			}
		})
	})
	if refused == nil {
		return n, nil
	}
	n = 0
	var s skips
	err := h.eachProcTCP(pid, stateEstablished, &s, func(r tcpRow, _ bool) {
		if r.local.Port() == port {
			n++
		}
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, errors.Join(err, refused))
	}
	return n, s.err(doing)
}
