// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestSharedRegistry: a registry takes one node, or several with a label each.
func TestSharedRegistry(t *testing.T) {
	r := prometheus.NewRegistry()
	node(t, Options{Metrics: r})
	n, err := New(Options{Metrics: r})
	if err == nil {
		n.Close()
		t.Fatal("a second node shares the registry")
	}
	for _, want := range []string{"registering the metrics of streams", "its own registry", "WrapRegistererWith"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it says %q, want %q in it", err, want)
		}
	}
	r = prometheus.NewRegistry()
	for _, name := range []string{"a", "b"} {
		node(t, Options{Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"node": name}, r)})
	}
}

// TestFailedStart leaves nothing in the registry.
func TestFailedStart(t *testing.T) {
	taken := node(t, Options{})
	o := Options{Metrics: prometheus.NewRegistry(), Listen: []messenger.Listen{listens(t, taken)}}
	if n, err := New(o); err == nil {
		n.Close()
		t.Fatal("two nodes listen at one address")
	}
	o.Listen = nil
	node(t, o)
}

// nearlyFull takes so many families more.
type nearlyFull struct {
	*prometheus.Registry
	left int
}

var errFull = errors.New("full")

func (r *nearlyFull) Register(c prometheus.Collector) error {
	if r.left--; r.left < 0 {
		return errFull
	}
	return r.Registry.Register(c)
}

// TestPartlyRegistered: wherever among the families of its parts registering fails, a node
// leaves none behind.
func TestPartlyRegistered(t *testing.T) {
	for left := 0; ; left++ {
		r := prometheus.NewRegistry()
		n, err := New(Options{Metrics: &nearlyFull{r, left}})
		if err == nil {
			n.Close()
			if left < 40 {
				t.Errorf("a node has %d families, want all of its parts'", left)
			}
			return
		}
		if !errors.Is(err, errFull) {
			t.Fatalf("a registry with room for %d: %v", left, err)
		}
		if families, err := r.Gather(); err != nil || len(families) != 0 {
			t.Errorf("a registry with room for %d has %d families left (%v)", left, len(families), err)
		}
		node(t, Options{Metrics: r})
	}
}

// TestLocalOpens counts the streams of one node.
func TestLocalOpens(t *testing.T) {
	r := prometheus.NewRegistry()
	n := node(t, Options{Metrics: r})
	a := anchor(t, n, AnchorOptions{})
	attach(t, n, a)
	if _, err := n.Attach(t.Context(), a.Handle()); err == nil {
		t.Error("a second sender is attached")
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "velo_streaming_anchor_operations_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if v := m.GetCounter().GetValue(); v != 0 {
				got[strings.Join(labels, " ")] = v
			}
		}
	}
	if want := map[string]float64{"open success velo": 1, "open error unknown": 1}; !maps.Equal(got, want) {
		t.Errorf("it counts %v, want %v", got, want)
	}
}

// listens is where a node's first listener is.
func listens(t *testing.T, n *Node) messenger.Listen {
	t.Helper()
	entries, err := n.PeerInfo().Address.Entries()
	if err != nil {
		t.Fatal(err)
	}
	list, err := wire.ParseEndpoints(entries["tcp"])
	if err != nil {
		t.Fatal(err)
	}
	return messenger.Listen{Network: "tcp", Address: netip.AddrPortFrom(list[0].IP, list[0].Port).String()}
}
