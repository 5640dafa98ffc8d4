// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// ErrHostName: an endpoint names its host, where only an IP address is dialed.
var ErrHostName = errors.New("a host name in place of an IP address")

// Endpoint is one address of a TCP listener.
type Endpoint struct {
	Interface string // empty for an explicit bind
	IP        netip.Addr
	Port      uint16
	Prefix    uint8 // length in bits of the subnet's prefix
	NUMA      int   // node of the interface; -1: not known
}

// AppendEndpoints appends the entry of a TCP transport.
func AppendEndpoints(dst []byte, list []Endpoint) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(list)))
	for _, e := range list {
		dst = msgp.AppendArrayHeader(dst, 5)
		dst = msgp.AppendString(dst, e.Interface)
		dst = msgp.AppendString(dst, e.IP.String())
		dst = msgp.AppendUint16(dst, e.Port)
		dst = msgp.AppendUint8(dst, e.Prefix)
		if e.NUMA < 0 {
			dst = msgp.AppendNil(dst)
		} else {
			dst = msgp.AppendUint64(dst, uint64(e.NUMA))
		}
	}
	return dst
}

// ParseEndpoints reads the entry of a TCP transport: the msgpack list, or the older text
// "tcp://host:port", "grpc://host:port" or "host:port". It never looks a name up: a host
// that is one is ErrHostName. An endpoint of a list whose IP is no IP address cannot be
// dialed and is left out; a list of none but such ones is an error.
func ParseEndpoints(entry []byte) ([]Endpoint, error) {
	var list []Endpoint
	var err error
	if msgp.NextType(entry) == msgp.ArrayType {
		list, err = parseEndpointList(entry)
	} else {
		list, err = parseEndpointText(entry)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the endpoints of an address: %w: %w", ErrAddress, err)
	}
	return list, nil
}

func parseEndpointList(b []byte) ([]Endpoint, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	if n > maxEndpoints {
		return nil, fmt.Errorf("%d endpoints, at most %d", n, maxEndpoints)
	}
	var list []Endpoint
	for i := range n {
		var e Endpoint
		if e, rest, err = readEndpoint(rest); err != nil {
			return nil, fmt.Errorf("endpoint %d: %w", i, err)
		}
		if e.IP.IsValid() {
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("none of %d endpoints has an IP address", n)
	}
	return list, nil
}

// readEndpoint leaves the IP invalid if it is not one.
func readEndpoint(b []byte) (e Endpoint, rest []byte, err error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return e, nil, err
	}
	if n != 5 {
		return e, nil, fmt.Errorf("an array of %d, want 5", n)
	}
	var name, ip []byte
	if name, rest, err = readText(rest); err != nil {
		return e, nil, err
	}
	if ip, rest, err = readText(rest); err != nil {
		return e, nil, err
	}
	if e.Port, rest, err = msgp.ReadUint16Bytes(rest); err != nil {
		return e, nil, err
	}
	if e.Prefix, rest, err = msgp.ReadUint8Bytes(rest); err != nil {
		return e, nil, err
	}
	e.NUMA = -1
	if msgp.IsNil(rest) {
		rest = rest[1:]
	} else {
		var numa int32
		if numa, rest, err = msgp.ReadInt32Bytes(rest); err != nil {
			return e, nil, err
		}
		e.NUMA = max(int(numa), -1)
	}
	e.Interface = string(name)
	e.IP, _ = netip.ParseAddr(string(ip))
	return e, rest, nil
}

func parseEndpointText(b []byte) ([]Endpoint, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("neither a msgpack list nor text")
	}
	s := string(b)
	for _, scheme := range []string{"tcp://", "grpc://"} {
		if after, ok := strings.CutPrefix(s, scheme); ok {
			s = after
			break
		}
	}
	addr, err := netip.ParseAddrPort(s)
	if err != nil {
		if i := strings.LastIndexByte(s, ':'); i > 0 && !strings.ContainsAny(s[:i], "[]:") {
			if _, err := strconv.ParseUint(s[i+1:], 10, 16); err == nil {
				return nil, fmt.Errorf("%q: %w; let the peer advertise an IP address", s, ErrHostName)
			}
		}
		return nil, err
	}
	return []Endpoint{{IP: addr.Addr(), Port: addr.Port(), Prefix: uint8(addr.Addr().BitLen()), NUMA: -1}}, nil
}

// unixScheme begins the entry of a Unix socket transport.
const unixScheme = "uds://"

// UnixEntry is the entry of a Unix socket transport that listens at the absolute path.
func UnixEntry(path string) []byte { return []byte(unixScheme + path) }

// ParseUnixEntry reads the entry of a Unix socket transport; the scheme may be missing.
func ParseUnixEntry(entry []byte) (path string, err error) {
	path = strings.TrimPrefix(string(entry), unixScheme)
	if !strings.HasPrefix(path, "/") || !utf8.ValidString(path) || strings.IndexByte(path, 0) >= 0 {
		return "", fmt.Errorf("reading the Unix socket of an address: %w: want %s and an absolute path", ErrAddress, unixScheme)
	}
	return path, nil
}
