// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/velo-agent/velo-agent/plane/transport/pkitest"
	"github.com/velo-agent/velo-agent/plane/wire"
)

func TestTLS(t *testing.T) {
	ca, other := pkitest.New(t), pkitest.New(t)
	server, client := wire.NewInstanceID(), wire.NewInstanceID()
	files := func(a *pkitest.Authority, name string, allow map[string][]string) *TLS {
		cert, key := a.Issue(t, name)
		l, err := TLSFiles{Cert: cert, Key: key, CA: ca.File, Allow: allow}.Load()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	const serverName, clientName = "spiffe://cluster/server", "spiffe://cluster/client"
	knows := map[string][]string{serverName: {server.String()}, clientName: {client.String()}}
	r := newRecorder()
	at := newTransport(t, "tcp", r, Options{TLS: files(ca, serverName, knows)})
	l, err := at.Listen("0.0.0.0:0")
	if err != nil {
		t.Fatal("TLS allows a wildcard:", err)
	}
	address := strings.Replace(l.Addr().String(), "0.0.0.0", "127.0.0.1", 1)
	address = strings.Replace(address, "[::]", "127.0.0.1", 1)

	for _, c := range []struct {
		name    string
		tls     *TLS
		dialing error // the dialer's own judgement
		want    error // the listener's
	}{
		{"both known", files(ca, clientName, knows), nil, nil},
		{"dns name", files(ca, "client.example", map[string][]string{serverName: {"*"}}), nil, ErrIdentity},
		{"server not on the list", files(ca, clientName, map[string][]string{clientName: {"*"}}), ErrIdentity, nil},
		{"another authority", files(other, clientName, knows), nil, errAny},
		{"plain", nil, nil, errAny},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newTransport(t, "tcp", newRecorder(), Options{TLS: c.tls})
			conn, err := d.Dial(context.Background(), address, nil)
			if c.dialing != nil {
				wantErr(t, err, c.dialing)
				if end := r.end(t); end == nil {
					t.Fatal("no error at the listener")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.want != nil {
				conn.TrySend(frame(wire.Message, 1, 5))
				if end := r.end(t); c.want != errAny {
					wantErr(t, end, c.want)
				} else if !strings.Contains(end.Error(), "TLS") {
					t.Fatal(end)
				}
				return
			}
			var s list
			for i := range uint32(100) {
				s.add(frame(wire.Message, i, 10_000))
			}
			conn.SetSource(&s)
			conn.Kick()
			f := taken{}
			for i := range uint32(100) {
				if f = r.next(t); f.word != i || !f.good {
					t.Fatalf("frame %d came as %+v", i, f)
				}
			}
			for _, m := range []struct {
				c           *Conn
				w           wire.WorkerID
				may, proved bool
			}{
				{f.c, client.Worker(), true, true},
				{f.c, server.Worker(), false, false},
				{conn, server.Worker(), true, true},
				{conn, 5, false, false},
			} {
				if may, proved := m.c.MaySpeakFor(m.w); may != m.may || proved != m.proved {
					t.Errorf("%d: may %v, proved %v", m.w, may, proved)
				}
			}
			conn.Close()
			r.end(t)
		})
	}
	any := files(ca, clientName, map[string][]string{serverName: {AnyInstance}})
	if may, proved := any.allows([]string{serverName}, 5); !may || proved {
		t.Errorf("of any instance: may %v, proved %v", may, proved)
	}
}

// errAny: the listener refuses in words of crypto/tls.
var errAny = errors.New("any error")

func TestTLSFiles(t *testing.T) {
	ca := pkitest.New(t)
	cert, key := ca.Issue(t, "x")
	allow := map[string][]string{"x": {"*"}}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		files TLSFiles
		want  string
	}{
		{"good", TLSFiles{cert, key, ca.File, allow}, ""},
		{"no certificate", TLSFiles{empty, key, ca.File, allow}, "reading the certificate"},
		{"no authority", TLSFiles{cert, key, empty, allow}, "none in PEM form"},
		{"authority not there", TLSFiles{cert, key, empty + "x", allow}, "no such file"},
		{"nobody allowed", TLSFiles{cert, key, ca.File, nil}, "allow-list"},
		{"no instance id", TLSFiles{cert, key, ca.File, map[string][]string{"x": {"y"}}}, "instance id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := c.files.Load()
			if c.want == "" {
				if err != nil || l.server.MinVersion != tls.VersionTLS13 {
					t.Fatal(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q in it", err, c.want)
			}
		})
	}
}

func TestListenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	used := listen(t, newTransport(t, "unix", newRecorder(), Options{}))
	for _, c := range []struct {
		name, network, address string
		o                      Options
		want                   error
	}{
		{"wildcard", "tcp", ":0", Options{}, ErrInsecure},
		{"all of IPv4", "tcp", "0.0.0.0:0", Options{}, ErrInsecure},
		{"allowed", "tcp", ":0", Options{Insecure: true}, nil},
		{"loopback", "tcp", "127.0.0.1:0", Options{}, nil},
		{"a file", "unix", file, Options{}, ErrBusy},
		{"in use", "unix", used, Options{}, ErrBusy},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newTransport(t, c.network, newRecorder(), c.o).Listen(c.address)
			wantErr(t, err, c.want)
		})
	}
	// A socket that was left behind is no obstacle, and none is left behind.
	left := anywhere(t, "unix")
	tr := newTransport(t, "unix", newRecorder(), Options{})
	l, err := tr.Listen(left)
	if err != nil {
		t.Fatal(err)
	}
	l.nl.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
	tr.Close()
	again := newTransport(t, "unix", newRecorder(), Options{})
	if _, err := again.Listen(left); err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}
