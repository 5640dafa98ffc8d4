// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"net/netip"
	"slices"
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
