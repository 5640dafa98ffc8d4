// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

const (
	endpointHex = "9195a0a93132372e302e302e31cd15b320c0"
	addressHex  = "81a3746370dc0012cc91cc95cca0cca93132372e302e302e31cccd15ccb320ccc0"
	helloBody   = `{"peer_info":{"instance_id":"00112233-4455-6677-8899-aabbccddeeff","worker_address":[129,163,116,99,112,220,0,18,204,145,204,149,204,160,204,169,49,50,55,46,48,46,48,46,49,204,205,21,204,179,32,204,192]}}`
)

var loopback = Endpoint{IP: netip.MustParseAddr("127.0.0.1"), Port: 5555, Prefix: 32, NUMA: -1}

func TestAddress(t *testing.T) {
	a := NewAddress(map[string][]byte{"tcp": AppendEndpoints(nil, []Endpoint{loopback})})
	equal(t, a, addressHex)
	if a.Checksum() != 1221309287881588350 {
		t.Errorf("checksum %d", a.Checksum())
	}
	entries, err := a.Entries()
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	equal(t, entries["tcp"], endpointHex)
	equal(t, NewAddress(nil), "80")
	if entries, err := Address("\x80").Entries(); err != nil || len(entries) != 0 {
		t.Errorf("an empty map: %v, %v", entries, err)
	}
}

// The order of a map's keys must not change an address.
func TestAddressSorted(t *testing.T) {
	entries := map[string][]byte{}
	for i := range 20 {
		entries[fmt.Sprintf("key-%02d", i)] = bytes.Repeat([]byte{byte(i), 255}, i)
	}
	a := NewAddress(entries)
	for range 10 {
		if b := NewAddress(maps.Clone(entries)); !bytes.Equal(a, b) {
			t.Fatal("two addresses of the same entries differ")
		}
	}
	back, err := a.Entries()
	if err != nil || !maps.EqualFunc(back, entries, bytes.Equal) {
		t.Errorf("%d entries came back, %v", len(back), err)
	}
}

func TestAddressTolerance(t *testing.T) {
	entries, err := Address(unhex(t, "83 a3746370 c40101  c403756473 9102  a3746370 9103  ff")).Entries()
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	equal(t, entries["tcp"], "03")
	equal(t, entries["uds"], "02")
}

func TestAddressMalformed(t *testing.T) {
	for name, a := range map[string]Address{
		"empty":           {},
		"not a map":       unhex(t, "90"),
		"key cut":         unhex(t, "81 a3 74"),
		"key not text":    unhex(t, "81 01 90"),
		"key not UTF-8":   unhex(t, "81 a1ff 90"),
		"no entry":        unhex(t, "81 a174"),
		"entry a text":    unhex(t, "81 a174 a174"),
		"entry nested":    unhex(t, "81 a174 91 90"),
		"entry cut":       unhex(t, "81 a174 93 01 02"),
		"entry of 256":    unhex(t, "81 a174 91 cd0100"),
		"huge entry":      unhex(t, "81 a174 dd ffffffff"),
		"huge bin":        unhex(t, "81 a174 c6 ffffffff"),
		"huge map":        unhex(t, "df ffffffff"),
		"65 entries":      NewAddress(numbered(65)),
		"more than 32 Ki": NewAddress(map[string][]byte{"tcp": make([]byte, 32<<10)}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.Entries()
			wantErr(t, err, ErrAddress)
		})
	}
	if _, err := NewAddress(numbered(64)).Entries(); err != nil {
		t.Error(err)
	}
}

func numbered(n int) map[string][]byte {
	entries := map[string][]byte{}
	for i := range n {
		entries[fmt.Sprint(i)] = nil
	}
	return entries
}

func TestPeerInfo(t *testing.T) {
	id, err := ParseInstanceID(goNode)
	if err != nil {
		t.Fatal(err)
	}
	want := PeerInfo{Instance: id, Address: unhex(t, addressHex)}
	if b := encode(HelloRequest{want}); string(b) != helloBody {
		t.Errorf("written %s", b)
	}
	var r HelloRequest
	if err := json.Unmarshal([]byte(helloBody), &r); err != nil || r.PeerInfo.Instance != id || !bytes.Equal(r.PeerInfo.Address, want.Address) {
		t.Errorf("read %+v, %v", r, err)
	}
	if b := encode(PeerInfo{}); string(b) != `{"instance_id":"00000000-0000-0000-0000-000000000000","worker_address":[]}` {
		t.Errorf("written %s", b)
	}
}

func TestPeerInfoAddress(t *testing.T) {
	for _, tt := range []struct {
		name, address, hex string
	}{
		{"numbers", `[ 129 , 0,255 ]`, "8100ff"},
		{"no numbers", `[]`, ""},
		{"a string", `"gaé"`, "6761c3a9"},
		{"a string with null", `"null"`, "6e756c6c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p PeerInfo
			if err := json.Unmarshal([]byte(`{"worker_address":`+tt.address+`,"x":[{}],"instance_id":"`+goNode+`"}`), &p); err != nil {
				t.Fatal(err)
			}
			equal(t, p.Address, tt.hex)
		})
	}
	for _, body := range []string{
		`null`, `{}`, `{"instance_id":"` + goNode + `"}`, `{"worker_address":[129]}`,
		`{"instance_id":"` + goNode[1:] + `","worker_address":[129]}`,
		`{"instance_id":"` + goNode + `","worker_address":null}`,
		`{"instance_id":"` + goNode + `","worker_address":[256]}`,
		`{"instance_id":"` + goNode + `","worker_address":[-1]}`,
		`{"instance_id":"` + goNode + `","worker_address":[1.5]}`,
		`{"instance_id":"` + goNode + `","worker_address":[1,null]}`,
		`{"instance_id":"` + goNode + `","worker_address":[[1]]}`,
		`{"instance_id":"` + goNode + `","worker_address":{}}`,
		`{"instance_id":"` + goNode + `","worker_address":["1"]}`,
		`{"instance_id":"` + goNode + `","worker_address":"` + strings.Repeat("a", 32<<10+1) + `"}`,
		`{"instance_id":"` + goNode + `","worker_address":"` + strings.Repeat("a", 256<<10) + `"}`,
	} {
		var p PeerInfo
		if err := p.UnmarshalJSON([]byte(body)); err == nil {
			t.Errorf("%.80s was read", body)
		} else {
			wantErr(t, err, ErrBody)
		}
	}
	wantErr(t, new(Address).UnmarshalJSON(nil), ErrAddress)
}

func TestEndpoints(t *testing.T) {
	eth0 := Endpoint{Interface: "eth0", IP: netip.MustParseAddr("10.0.0.5"), Port: 40000, Prefix: 24, NUMA: 1}
	six := Endpoint{Interface: "eth1", IP: netip.MustParseAddr("2001:db8::1"), Port: 1, Prefix: 64, NUMA: 200}
	for _, tt := range []struct {
		name string
		list []Endpoint
		hex  string
	}{
		{"loopback", []Endpoint{loopback}, endpointHex},
		{"eth0", []Endpoint{eth0}, "9195a465746830a831302e302e302e35cd9c401801"},
		{"two", []Endpoint{loopback, six}, "92 95a0a93132372e302e302e31cd15b320c0 95a465746831ab323030313a6462383a3a310140ccc8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, AppendEndpoints(nil, tt.list), tt.hex)
			list, err := ParseEndpoints(unhex(t, tt.hex))
			if err != nil || !slices.Equal(list, tt.list) {
				t.Errorf("read %+v, %v", list, err)
			}
		})
	}
}

func TestEndpointText(t *testing.T) {
	for _, tt := range []struct {
		text, ip string
		prefix   uint8
		cause    error
	}{
		{"tcp://127.0.0.1:5555", "127.0.0.1", 32, nil},
		{"grpc://127.0.0.1:5555", "127.0.0.1", 32, nil},
		{"127.0.0.1:5555", "127.0.0.1", 32, nil},
		{"tcp://[2001:db8::1]:5555", "2001:db8::1", 128, nil},
		{"tcp://worker-1.svc:5555", "", 0, ErrHostName},
		{"localhost:5555", "", 0, ErrHostName},
		{"localhost:65536", "", 0, ErrAddress},
		{"http://127.0.0.1:5555", "", 0, ErrAddress},
		{"tcp://127.0.0.1", "", 0, ErrAddress},
		{"[2001:db8::1]", "", 0, ErrAddress},
		{"", "", 0, ErrAddress},
		{"\xff\xfe", "", 0, ErrAddress},
	} {
		list, err := ParseEndpoints([]byte(tt.text))
		if tt.cause != nil {
			wantErr(t, err, tt.cause)
			continue
		}
		want := Endpoint{IP: netip.MustParseAddr(tt.ip), Port: 5555, Prefix: tt.prefix, NUMA: -1}
		if err != nil || !slices.Equal(list, []Endpoint{want}) {
			t.Errorf("%s: %+v, %v", tt.text, list, err)
		}
	}
}

func TestEndpointsMalformed(t *testing.T) {
	for name, digits := range map[string]string{
		"empty list":     "90",
		"list cut":       "dc00",
		"huge list":      "dd ffffffff",
		"no endpoint":    "91",
		"not an array":   "91 a0",
		"four fields":    "91 94 a0 a93132372e302e302e31 01 20",
		"name a number":  "91 95 01 a93132372e302e302e31 01 20 c0",
		"IP a number":    "91 95 a0 01 01 20 c0",
		"port of 65536":  "91 95 a0 a93132372e302e302e31 ce00010000 20 c0",
		"prefix of 256":  "91 95 a0 a93132372e302e302e31 01 cd0100 c0",
		"NUMA a text":    "91 95 a0 a93132372e302e302e31 01 20 a0",
		"NUMA cut":       "91 95 a0 a93132372e302e302e31 01 20",
		"none has an IP": "91 95 a0 a165 01 20 c0",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseEndpoints(unhex(t, digits))
			wantErr(t, err, ErrAddress)
		})
	}
}

// One interface that cannot be dialed must not hide the others.
func TestEndpointsLeaveOut(t *testing.T) {
	list, err := ParseEndpoints(unhex(t, "92 95 a0 a165 01 20 c0 95 a0 a93132372e302e302e31 cd15b3 20 fe"))
	if err != nil || !slices.Equal(list, []Endpoint{loopback}) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestUnixEntry(t *testing.T) {
	const path = "/run/velo/é.sock"
	if got := string(UnixEntry(path)); got != "uds:///run/velo/é.sock" {
		t.Errorf("written %s", got)
	}
	for _, entry := range []string{"uds://" + path, path} {
		if got, err := ParseUnixEntry([]byte(entry)); err != nil || got != path {
			t.Errorf("%s: %s, %v", entry, got, err)
		}
	}
	for _, entry := range []string{"", "uds://", "uds://relative", "127.0.0.1:1", "/\xff", "/a\x00b"} {
		_, err := ParseUnixEntry([]byte(entry))
		wantErr(t, err, ErrAddress)
	}
}
