// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// addresses is where this node can be reached.
type addresses struct {
	mu        sync.Mutex
	endpoints []wire.Endpoint   // of all TCP listeners, as peers reach them
	own       map[string][]byte // entries of the messenger
	more      map[string][]byte // of others
}

func (a *addresses) listens(l Listen, bound net.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil {
		a.own = map[string][]byte{}
	}
	if l.Network == "unix" {
		path, err := filepath.Abs(bound.String())
		if err != nil {
			return fmt.Errorf("finding the absolute path of a Unix socket: %w", err)
		}
		a.own["uds"] = wire.UnixEntry(path)
		return nil
	}
	list, err := l.Endpoints(bound)
	if err != nil {
		return err
	}
	a.endpoints = append(a.endpoints, list...)
	a.own["tcp"] = wire.AppendEndpoints(nil, a.endpoints)
	return nil
}

func (a *addresses) add(key string, entry []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.more == nil {
		a.more = map[string][]byte{}
	}
	a.more[key] = entry
}

// all is what discovery and the application tell others.
func (a *addresses) all() wire.Address {
	a.mu.Lock()
	defer a.mu.Unlock()
	entries := maps.Clone(a.own)
	if entries == nil {
		entries = map[string][]byte{}
	}
	maps.Copy(entries, a.more)
	return wire.NewAddress(entries)
}

// messenger is what a _hello says, as velo's does: no entries of others.
func (a *addresses) messenger() wire.Address {
	a.mu.Lock()
	defer a.mu.Unlock()
	return wire.NewAddress(a.own)
}

// advertises parses Advertise; zero: there is none.
func (l Listen) advertises() (netip.AddrPort, error) {
	if l.Advertise == "" {
		return netip.AddrPort{}, nil
	}
	at, err := netip.ParseAddrPort(l.Advertise)
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	wrong := ""
	switch ip := at.Addr(); {
	case l.Network != "tcp":
		wrong = "it is for tcp, not for " + l.Network
	case err != nil:
		wrong = "it is no IP address and port"
	case ip.IsUnspecified(), ip.IsMulticast(), ip.Zone() != "":
		wrong = "nobody else can dial that IP address"
	case at.Port() == 0:
		wrong = "it has port 0"
	}
	if wrong != "" {
		return netip.AddrPort{}, fmt.Errorf("advertising the address of a listener: Advertise is %q: %s; give it where peers are to dial, like 192.0.2.5:9767, or leave it empty", l.Advertise, wrong)
	}
	return at, nil
}

// Endpoints are those by which peers reach a TCP listener that is bound to an address:
// Advertise, or its own.
func (l Listen) Endpoints(bound net.Addr) ([]wire.Endpoint, error) {
	at, err := l.advertises()
	if err != nil {
		return nil, err
	}
	if at.IsValid() {
		return []wire.Endpoint{{IP: at.Addr(), Port: at.Port(), Prefix: uint8(at.Addr().BitLen()), NUMA: -1}}, nil
	}
	tcp, ok := bound.(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("finding the address of a listener: %s is none of TCP", bound)
	}
	return advertised(tcp.AddrPort())
}

// advertised are the endpoints of a TCP listener: its address, or for a wildcard those
// of every interface that others may reach, or the loopback interface if there is none.
func advertised(bound netip.AddrPort) ([]wire.Endpoint, error) {
	ip := bound.Addr().Unmap()
	if !ip.IsUnspecified() {
		return []wire.Endpoint{{IP: ip, Port: bound.Port(), Prefix: uint8(ip.BitLen()), NUMA: -1}}, nil
	}
	list, err := interfaces()
	if err != nil {
		return nil, fmt.Errorf("finding the addresses of this host: %w", err)
	}
	var far, near []wire.Endpoint
	for _, e := range list {
		e.Port = bound.Port()
		// A wildcard of IPv6 takes IPv4 too.
		if e.IP.Is6() && ip.Is4() {
			continue
		}
		if e.IP.IsLoopback() {
			near = append(near, e)
		} else {
			far = append(far, e)
		}
	}
	if far == nil {
		return near, nil
	}
	return far, nil
}

// interfaces are the addresses of this host, without ports and without link-local ones.
func interfaces() ([]wire.Endpoint, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []wire.Endpoint
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil || prefix.Addr().IsLinkLocalUnicast() {
				continue
			}
			list = append(list, wire.Endpoint{Interface: i.Name, IP: prefix.Addr(), Prefix: uint8(prefix.Bits()), NUMA: numaOf(i.Name)})
		}
	}
	return list, nil
}

// numaOf is the NUMA node of an interface, -1 where it has none.
func numaOf(name string) int {
	b, err := os.ReadFile(filepath.Join("/sys/class/net", name, "device/numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1
	}
	return n
}

// nearest sorts endpoints as velo's dialer chooses: one of our subnets on our NUMA node,
// our NUMA node, our subnet, anything but loopback, the rest.
func nearest(list, own []wire.Endpoint) []string {
	var ranks [5][]string
	for _, e := range list {
		rank := 4
		if !e.IP.IsLoopback() {
			rank = 3
		}
		for _, o := range own {
			subnet := o.IP.BitLen() == e.IP.BitLen() && netip.PrefixFrom(o.IP, int(o.Prefix)).Contains(e.IP)
			numa := o.NUMA >= 0 && o.NUMA == e.NUMA
			switch {
			case subnet && numa:
				rank = 0
			case numa:
				rank = min(rank, 1)
			case subnet && !e.IP.IsLoopback():
				rank = min(rank, 2)
			}
		}
		ranks[rank] = append(ranks[rank], netip.AddrPortFrom(e.IP, e.Port).String())
	}
	var sorted []string
	for _, r := range ranks {
		sorted = append(sorted, r...)
	}
	return sorted
}
