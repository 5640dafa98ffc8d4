// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/transport/pkitest"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestTLS runs streams between two nodes that show certificates; others get nowhere.
func TestTLS(t *testing.T) {
	watch(t)
	ca, stranger := pkitest.New(t), pkitest.New(t)
	names := []string{"spiffe://cluster/frontend", "worker.cluster", "other.cluster", "unlisted.cluster"}
	var ids []wire.InstanceID
	allow := map[string][]string{}
	for _, name := range names {
		id := wire.NewInstanceID()
		ids = append(ids, id)
		if name != "unlisted.cluster" {
			allow[name] = []string{id.String()}
		}
	}
	secured := func(by *pkitest.Authority, name string, id wire.InstanceID) *site {
		cert, key := by.Issue(t, name)
		files := transport.TLSFiles{Cert: cert, Key: key, CA: ca.File, Allow: allow}
		loaded, err := files.Load()
		if err != nil {
			t.Fatal(err)
		}
		return start(t, plane.Options{
			Instance: id, Transport: transport.Options{TLS: loaded, DialTimeout: 2 * time.Second}, Mux: mux.Options{Silence: silence},
		})
	}
	frontend, worker := secured(ca, names[0], ids[0]), secured(ca, names[1], ids[1])
	register(t, frontend, worker.PeerInfo())
	register(t, worker, frontend.PeerInfo())
	n := pick(256, 2048)
	c := gather(t, worker, frontend, 0, n, 2)
	c.live(t)

	for _, bad := range []struct {
		name string
		node *site
	}{
		{"not on the list", secured(ca, names[3], ids[3])},
		{"bound to another instance", secured(ca, names[2], wire.NewInstanceID())},
		{"says that it is another", secured(ca, names[2], ids[1])},
		{"of another authority", secured(stranger, names[1], wire.NewInstanceID())},
		{"no certificate", start(t, plane.Options{})},
	} {
		t.Run(bad.name, func(t *testing.T) {
			entries, err := frontend.PeerInfo().Address.Entries()
			if err != nil {
				t.Fatal(err)
			}
			delete(entries, wire.KeyTCPStream)
			register(t, bad.node, wire.PeerInfo{Instance: ids[0], Address: wire.NewAddress(entries)})
			a, err := frontend.NewAnchor(plane.AnchorOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if s, err := bad.node.Attach(ctx, a.Handle()); err == nil {
				t.Error("it may attach")
				s.Close()
			} else {
				t.Log(err)
			}
			ticket, err := a.Ticket(0)
			if err != nil {
				t.Fatal(err)
			}
			s, err := bad.node.Open(a.Handle(), ticket)
			if err != nil {
				t.Fatal(err)
			}
			_ = s.TrySend([]byte("forged")) // it is refused later, or now
			select {
			case <-s.Done():
				if got := word(s.Err()); got != "peer lost" {
					t.Errorf("the stream ends with %v", s.Err())
				}
			case <-time.After(patience):
				t.Error("the stream does not end")
			}
			s.Close()
			if a.Waiting() {
				t.Error("something came to the anchor")
			}
		})
	}
	c.more(t, n)
	c.complete(t)
	info := frontend.PeerInfo()
	if strings.Contains(string(info.Address), wire.KeyTCPStream) {
		t.Error("streams without TLS are offered")
	}
	quiet(t, frontend, worker)
}
