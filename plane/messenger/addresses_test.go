// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/velo-agent/velo-agent/plane/wire"
)

func endpoint(s string, numa int) wire.Endpoint {
	p := netip.MustParsePrefix(s)
	return wire.Endpoint{IP: p.Addr(), Port: 7, Prefix: uint8(p.Bits()), NUMA: numa}
}

func TestNearest(t *testing.T) {
	own := []wire.Endpoint{endpoint("127.0.0.1/8", -1), endpoint("10.1.0.1/16", 0), endpoint("10.2.0.1/16", 1), endpoint("fd00::1/64", -1)}
	for _, c := range []struct {
		name string
		list []wire.Endpoint
		want []string
	}{
		{"none", nil, nil},
		{"loopback last", []wire.Endpoint{endpoint("127.0.0.1/8", -1), endpoint("192.168.1.1/24", -1)}, []string{"192.168.1.1:7", "127.0.0.1:7"}},
		{"subnet", []wire.Endpoint{endpoint("192.168.1.1/24", -1), endpoint("10.1.9.9/16", -1)}, []string{"10.1.9.9:7", "192.168.1.1:7"}},
		{"IPv6 subnet", []wire.Endpoint{endpoint("192.168.1.1/24", -1), endpoint("fd00::9/64", -1)}, []string{"[fd00::9]:7", "192.168.1.1:7"}},
		{"NUMA node before subnet", []wire.Endpoint{endpoint("10.2.9.9/16", 5), endpoint("192.168.1.1/24", 1)}, []string{"192.168.1.1:7", "10.2.9.9:7"}},
		{"both first", []wire.Endpoint{endpoint("192.168.1.1/24", 1), endpoint("10.1.9.9/16", 1), endpoint("10.2.9.9/16", 1)}, []string{"10.2.9.9:7", "192.168.1.1:7", "10.1.9.9:7"}},
	} {
		if got := nearest(c.list, own); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAdvertised(t *testing.T) {
	bound := netip.MustParseAddrPort("10.9.8.7:6")
	list, err := advertised(bound)
	if err != nil || len(list) != 1 || list[0] != (wire.Endpoint{IP: bound.Addr(), Port: 6, Prefix: 32, NUMA: -1}) {
		t.Errorf("%v, %v", list, err)
	}
	list, err = advertised(netip.MustParseAddrPort("0.0.0.0:6"))
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	for _, e := range list {
		if e.Interface == "" || e.Port != 6 || !e.IP.Is4() || e.IP.IsLinkLocalUnicast() || e.IP.IsLoopback() != list[0].IP.IsLoopback() {
			t.Errorf("%+v", e)
		}
	}
}

// TestAdvertise: what a listener advertises takes the place of where it listens, in the
// peer info and in hellos.
func TestAdvertise(t *testing.T) {
	for text, want := range map[string]netip.AddrPort{
		"192.0.2.5:9767":          netip.MustParseAddrPort("192.0.2.5:9767"),
		"[2001:db8::5]:1":         netip.MustParseAddrPort("[2001:db8::5]:1"),
		"[::ffff:192.0.2.5]:9767": netip.MustParseAddrPort("192.0.2.5:9767"),
		"127.0.0.1:65535":         netip.MustParseAddrPort("127.0.0.1:65535"),
	} {
		m := newNode(t, "", Options{Listen: []Listen{listenOn(t, "unix"), {Network: "tcp", Address: "127.0.0.1:0", Advertise: text}}})
		for name, a := range map[string]wire.Address{"peer info": m.PeerInfo().Address, "hello": m.addresses.messenger()} {
			entries, err := a.Entries()
			if err != nil {
				t.Fatal(err)
			}
			list, err := wire.ParseEndpoints(entries["tcp"])
			if err != nil || len(list) != 1 || list[0] != (wire.Endpoint{IP: want.Addr(), Port: want.Port(), Prefix: uint8(want.Addr().BitLen()), NUMA: -1}) {
				t.Errorf("%s: the %s says %+v (%v)", text, name, list, err)
			}
			if len(entries) != 2 {
				t.Errorf("%s: the %s has %d entries", text, name, len(entries))
			}
		}
	}
}

func TestBadAdvertise(t *testing.T) {
	for _, c := range []struct{ name, network, advertise, says string }{
		{"host name", "tcp", "node-7.cluster:9767", "no IP address"},
		{"no port", "tcp", "192.0.2.5", "no IP address and port"},
		{"no address", "tcp", ":9767", "no IP address"},
		{"port too large", "tcp", "192.0.2.5:65536", "no IP address and port"},
		{"space", "tcp", " 192.0.2.5:9767", "no IP address"},
		{"port 0", "tcp", "192.0.2.5:0", "port 0"},
		{"unspecified", "tcp", "0.0.0.0:9767", "dial that IP address"},
		{"unspecified IPv6", "tcp", "[::]:9767", "dial that IP address"},
		{"unspecified, mapped", "tcp", "[::ffff:0.0.0.0]:9767", "dial that IP address"},
		{"multicast", "tcp", "224.0.0.1:9767", "dial that IP address"},
		{"zone", "tcp", "[fe80::1%eth0]:9767", "dial that IP address"},
		{"Unix socket", "unix", "192.0.2.5:9767", "it is for tcp"},
	} {
		l := listenOn(t, c.network)
		l.Advertise = c.advertise
		m, err := New(Options{Listen: []Listen{l}})
		if err == nil {
			m.Close()
			t.Errorf("%s: it listens", c.name)
			continue
		}
		for _, want := range []string{c.says, "Advertise", strings.TrimSpace(c.advertise)} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: it says %q, want %q in it", c.name, err, want)
			}
		}
	}
}
