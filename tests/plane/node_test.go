// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// patience is how long a test waits for what must come, but for which no time is promised.
const patience = 45 * time.Second

// site is a node and what it shows of itself.
type site struct {
	*plane.Node
	shown *prometheus.Registry
}

func newSite(o plane.Options) (*site, error) {
	if o.Listen == nil {
		o.Listen = []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}
	}
	s := &site{shown: prometheus.NewRegistry()}
	o.Metrics = s.shown
	var err error
	s.Node, err = plane.New(o)
	return s, err
}

// start starts a node that the test's end closes.
func start(t testing.TB, o plane.Options) *site {
	t.Helper()
	s, err := newSite(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// pair starts two nodes that know each other.
func pair(t testing.TB, a, b plane.Options) (*site, *site) {
	t.Helper()
	x, y := start(t, a), start(t, b)
	register(t, x, y.PeerInfo())
	register(t, y, x.PeerInfo())
	return x, y
}

func register(t testing.TB, at *site, who wire.PeerInfo) {
	t.Helper()
	if err := at.Register(who); err != nil {
		t.Fatal(err)
	}
}

// listensAt is where a node takes messages.
func listensAt(t testing.TB, p wire.PeerInfo) netip.AddrPort {
	t.Helper()
	entries, err := p.Address.Entries()
	if err != nil {
		t.Fatal(err)
	}
	list, err := wire.ParseEndpoints(entries["tcp"])
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(list[0].IP, list[0].Port)
}

// at is a peer that is to be reached elsewhere.
func at(id wire.InstanceID, where netip.AddrPort) wire.PeerInfo {
	e := wire.Endpoint{IP: where.Addr(), Port: where.Port(), Prefix: 32, NUMA: -1}
	return wire.PeerInfo{Instance: id, Address: wire.NewAddress(map[string][]byte{"tcp": wire.AppendEndpoints(nil, []wire.Endpoint{e})})}
}

// shows is the sum of a family's series that have all the labels, given as name=value.
func (s *site) shows(t testing.TB, family string, labels ...string) (sum float64) {
	t.Helper()
	families, err := s.shown.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != family {
			continue
		}
	next:
		for _, m := range f.GetMetric() {
			have := ""
			for _, l := range m.GetLabel() {
				have += "," + l.GetName() + "=" + l.GetValue() + ","
			}
			for _, l := range labels {
				if !strings.Contains(have, ","+l+",") {
					continue next
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
	t.Fatalf("the node shows no %s", family)
	return 0
}

// series counts what a node shows.
func (s *site) series(t testing.TB) (n int) {
	t.Helper()
	families, err := s.shown.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

// eventually waits until what says is empty; it says what is still wrong.
func eventually(t testing.TB, says func() string) {
	t.Helper()
	wrong := says()
	for end := time.Now().Add(patience); wrong != ""; wrong = says() {
		if time.Now().After(end) {
			t.Fatal(wrong)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// quiet waits until nodes hold nothing of any stream, and then drains them, which counts
// senders too.
func quiet(t testing.TB, sites ...*site) {
	t.Helper()
	for _, s := range sites {
		eventually(t, func() string {
			anchors := s.shows(t, "velo_streaming_active_anchors")
			held, staged := s.shows(t, "velo_streaming_mux_held_records"), s.shows(t, "velo_streaming_mux_staged_records")
			if slots := s.Live(); slots != 0 || anchors != 0 || held != 0 || staged != 0 {
				return fmt.Sprintf("left behind: %d slots, %v anchors, %v held and %v staged records", slots, anchors, held, staged)
			}
			return ""
		})
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := s.Drain(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// watch has the test fail if goroutines or descriptors are left when all that it starts
// afterwards was closed.
func watch(t testing.TB) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	t.Cleanup(func() {
		eventually(t, func() string {
			if g, f := runtime.NumGoroutine(), descriptors(t); g > goroutines || f > files {
				return fmt.Sprintf("%d goroutines and %d descriptors are left, there were %d and %d", g, f, goroutines, files)
			}
			return ""
		})
	})
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// heap is what is reachable, in bytes.
func heap() int {
	runtime.GC()
	runtime.GC() // what pools kept goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
