// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Numbers of linux/sock_diag.h and linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	lenDiagReq       = 56 // struct inet_diag_req_v2
	lenDiagMsg       = 72 // struct inet_diag_msg
	diagReqProtocol  = 3  // INET_DIAG_REQ_PROTOCOL, for protocols above 255
	diagSKV6Only     = 11 // INET_DIAG_SKV6ONLY
	diagULPInfo      = 19 // INET_DIAG_ULP_INFO, given only together with INET_DIAG_INFO
	diagAskInfo      = 2  // the bit of INET_DIAG_INFO in idiag_ext
	ulpName          = 1  // INET_ULP_INFO_NAME
)

// diagSock is one socket of a sock_diag dump.
type diagSock struct {
	local  netip.AddrPort
	v6     bool
	v6only bool
	mptcp  bool   // a subflow of an MPTCP socket
	rqueue uint32 // of a listener: connections waiting
	wqueue uint32 // of a listener: how many may wait
	inode  uint32
	cookie uint64
}

// diagDump asks the kernel for the sockets of the calling thread's network
// namespace: family AF_INET or AF_INET6, IPPROTO_TCP or IPPROTO_MPTCP, the states
// as a bit mask, and the local port (0: any); the kernel does the filtering. It
// needs no right. For listeners it asks for the upper-layer protocol too. A kernel without the protocol's dump gives ErrUnsupported.
func diagDump(family uint8, protocol uint32, states uint32, port uint16, f func(diagSock)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("opening a sock_diag socket: %w", err)
	}
	defer unix.Close(fd)
	// Whatever goes wrong, the caller shall not wait for ever.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return fmt.Errorf("bounding a sock_diag socket's wait: %w", err)
	}
	if err := unix.Sendto(fd, diagRequest(family, protocol, states, port), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("asking sock_diag: %w", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading from sock_diag: %w", err)
		}
		if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
			continue // not from the kernel
		}
		done, err := parseDiag(buf[:n], f)
		if done || err != nil {
			return err
		}
	}
}

// diagRequest builds nlmsghdr, inet_diag_req_v2 and, for protocols above 255,
// the attribute that names them.
func diagRequest(family uint8, protocol, states uint32, port uint16) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+lenDiagReq)
	ne := binary.NativeEndian
	req := b[unix.NLMSG_HDRLEN:]
	req[0], req[1] = family, uint8(protocol)
	if states == 1<<stateListen {
		req[2] = diagAskInfo
	}
	ne.PutUint32(req[4:], states)
	binary.BigEndian.PutUint16(req[8:], port)
	if protocol > 255 {
		req[1] = unix.IPPROTO_RAW // what a kernel that ignores the attribute refuses
		b = ne.AppendUint16(b, 8)
		b = ne.AppendUint16(b, diagReqProtocol)
		b = ne.AppendUint32(b, protocol)
	}
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], sockDiagByFamily)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	ne.PutUint32(b[8:], 1)
	return b
}

// parseDiag reads one datagram of an answer; done says that the dump has ended.
func parseDiag(b []byte, f func(diagSock)) (done bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(ne.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return true, fmt.Errorf("sock_diag message of %d bytes in %d: %w", size, len(b), ErrMalformed)
		}
		body := b[unix.NLMSG_HDRLEN:size]
		switch ne.Uint16(b[4:]) {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			return true, diagErr(body)
		case sockDiagByFamily:
			s, err := parseDiagSock(body)
			if err != nil {
				return true, err
			}
			f(s)
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}

// diagErr turns the status that ends an answer into an error.
func diagErr(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	code := int32(binary.NativeEndian.Uint32(body))
	if code >= 0 {
		return nil
	}
	errno := unix.Errno(-code)
	if errno == unix.ENOENT || errno == unix.EPROTONOSUPPORT || errno == unix.EINVAL {
		// ENOENT is not wrapped: it does not mean that something has gone.
		return fmt.Errorf("asking sock_diag: %w (%v)", errors.ErrUnsupported, errno)
	}
	return fmt.Errorf("asking sock_diag: %w", errno)
}

// parseDiagSock reads inet_diag_msg and the attributes behind it.
func parseDiagSock(b []byte) (diagSock, error) {
	if len(b) < lenDiagMsg {
		return diagSock{}, fmt.Errorf("sock_diag answer of %d bytes, want %d: %w", len(b), lenDiagMsg, ErrMalformed)
	}
	ne := binary.NativeEndian
	s := diagSock{
		v6:     b[0] == unix.AF_INET6,
		cookie: uint64(ne.Uint32(b[44:])) | uint64(ne.Uint32(b[48:]))<<32,
		rqueue: ne.Uint32(b[56:]),
		wqueue: ne.Uint32(b[60:]),
		inode:  ne.Uint32(b[68:]),
	}
	addr := netip.AddrFrom4([4]byte(b[8:12]))
	if s.v6 {
		addr = netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	}
	s.local = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[4:]))
	eachAttr(b[lenDiagMsg:], func(kind uint16, v []byte) {
		switch {
		case kind == diagSKV6Only && len(v) > 0:
			s.v6only = v[0] != 0
		case kind == diagULPInfo:
			eachAttr(v, func(kind uint16, v []byte) {
				if kind == ulpName && bytes.Equal(bytes.TrimRight(v, "\x00"), []byte("mptcp")) {
					s.mptcp = true
				}
			})
		}
	})
	return s, nil
}

// eachAttr walks netlink attributes as far as they are well formed.
func eachAttr(b []byte, f func(kind uint16, v []byte)) {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}
