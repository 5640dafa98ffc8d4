// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/transport/pkitest"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestTLS: a certificate says whose word a node may speak, and what may move it.
func TestTLS(t *testing.T) {
	ca := pkitest.New(t)
	a, b := wire.NewInstanceID(), wire.NewInstanceID()
	allow := map[string][]string{"a": {a.String()}, "b": {b.String()}, "any": {transport.AnyInstance}}
	node := func(name string, id wire.InstanceID) *Messenger {
		cert, key := ca.Issue(t, name)
		l, err := transport.TLSFiles{Cert: cert, Key: key, CA: ca.File, Allow: allow}.Load()
		if err != nil {
			t.Fatal(err)
		}
		m := newNode(t, "tcp", Options{Instance: id, Transport: transport.Options{TLS: l}})
		m.Handle("_echo", echo)
		return m
	}
	first, second := node("a", a), node("b", b)
	register(t, first, second)
	if got, err := first.Call(soon(t), b.Worker(), "_echo", []byte("x")); err != nil || string(got) != "x" {
		t.Fatal(string(got), err)
	}
	where := func(m *Messenger) string {
		info, _ := m.Peer(a.Worker())
		return string(info.Address)
	}
	known := where(second)

	// Whoever may be any instance takes the id of another one: it is not moved.
	thief := node("any", a)
	register(t, thief, second)
	// The answer to its hello goes to the other one.
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := thief.Call(ctx, b.Worker(), "_echo", nil)
	wantErr(t, err, context.DeadlineExceeded)
	if where(second) != known {
		t.Fatal("the peer was moved")
	}
	// And who is bound to another id is not listened to.
	liar := node("b", wire.NewInstanceID())
	register(t, liar, second)
	_, err = liar.Call(soon(t), b.Worker(), "_echo", nil)
	wantErr(t, err, ErrPeerLost)
	// Nor is it dialed as what it is not.
	register(t, first, liar)
	_, err = first.Call(soon(t), liar.Worker(), "_echo", nil)
	wantErr(t, err, transport.ErrIdentity)

	// The instance itself, proved, may move, though it still answers where it was.
	moved := node("a", a)
	register(t, moved, second)
	if _, err := moved.Call(soon(t), b.Worker(), "_echo", nil); err != nil {
		t.Fatal(err)
	}
	if where(second) == known {
		t.Error("the peer could not move")
	}
}
