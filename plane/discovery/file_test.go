// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/plane/wire"
)

func peer(n byte) wire.PeerInfo {
	return wire.PeerInfo{
		Instance: wire.InstanceID{15: n},
		Address:  wire.NewAddress(map[string][]byte{"tcp": {n}}),
	}
}

func find(t *testing.T, d Discovery, p wire.PeerInfo) (err error) {
	t.Helper()
	for _, look := range []func() (wire.PeerInfo, error){
		func() (wire.PeerInfo, error) { return d.ByWorker(context.Background(), p.Instance.Worker()) },
		func() (wire.PeerInfo, error) { return d.ByInstance(context.Background(), p.Instance) },
	} {
		var got wire.PeerInfo
		if got, err = look(); err == nil && (got.Instance != p.Instance || string(got.Address) != string(p.Address)) {
			t.Fatalf("found %v", got)
		}
	}
	return err
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
}

func TestStatic(t *testing.T) {
	d := NewStatic(peer(1), peer(2))
	wantErr(t, find(t, d, peer(2)), nil)
	wantErr(t, find(t, d, peer(3)), ErrNotFound)
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "peers.json")
	f := NewFile(path)
	wantErr(t, find(t, f, peer(1)), ErrNotFound)
	guard, err := f.Register(peer(1))
	wantErr(t, err, nil)
	_, err = f.Register(peer(1))
	wantErr(t, err, ErrRegistered)
	_, err = NewFile(path).Register(peer(2))
	wantErr(t, err, nil)
	wantErr(t, find(t, f, peer(1)), nil)
	wantErr(t, find(t, f, peer(2)), nil)
	b, err := os.ReadFile(path)
	wantErr(t, err, nil)
	for _, want := range []string{
		"{\n  \"peers\": [\n    {\n      \"instance_id\": \"00000000-0000-0000-0000-000000000001\",\n      \"worker_id\": ",
		"\"worker_address\": [\n        129,\n", fmt.Sprintf("\"address_checksum\": %d\n", peer(2).Address.Checksum()),
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the file lacks %q:\n%s", want, b)
		}
	}
	wantErr(t, guard.Unregister(), nil)
	wantErr(t, guard.Unregister(), nil)
	wantErr(t, find(t, f, peer(1)), ErrNotFound)
	wantErr(t, find(t, f, peer(2)), nil)
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestTogether: registrations at the same time do not drop each other.
func TestTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.json")
	var wg sync.WaitGroup
	for i := range byte(20) {
		wg.Go(func() {
			if _, err := NewFile(path).Register(peer(i + 1)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range byte(20) {
		wantErr(t, find(t, NewFile(path), peer(i+1)), nil)
	}
}

func TestDamaged(t *testing.T) {
	good := `{"instance_id":"00000000-0000-0000-0000-000000000001","worker_id":0,"worker_address":[129,163,116,99,112,145,1],"address_checksum":0}`
	for _, c := range []struct {
		name, content string
		want          error
	}{
		{"nothing said twice", `{"peers":[` + good + `]}`, nil},
		{"more fields", `{"version":3,"peers":[` + good + `]}`, nil},
		{"empty", ``, ErrNotFound},
		{"no peers", `{"peers":[]}`, ErrNotFound},
		{"no JSON", `{"peers":[`, ErrDamaged},
		{"null", `null`, ErrDamaged},
		{"no list", `{}`, ErrDamaged},
		{"a list", `[]`, ErrDamaged},
		{"no worker", `{"peers":[{"instance_id":"00000000-0000-0000-0000-000000000001","worker_address":[128],"address_checksum":0}]}`, ErrDamaged},
		{"no checksum", `{"peers":[{"instance_id":"00000000-0000-0000-0000-000000000001","worker_id":0,"worker_address":[128]}]}`, ErrDamaged},
		{"no instance", `{"peers":[{"worker_id":0,"worker_address":[128],"address_checksum":0}]}`, ErrDamaged},
		{"no address", `{"peers":[{"instance_id":"00000000-0000-0000-0000-000000000001","worker_id":0,"address_checksum":0}]}`, ErrDamaged},
		{"another checksum", strings.Replace(`{"peers":[`+good+`]}`, `checksum":0`, `checksum":7`, 1), ErrDamaged},
		{"an instance that is none", strings.Replace(`{"peers":[`+good+`]}`, "00000001", "x", 1), ErrDamaged},
		{"bytes that are none", strings.Replace(`{"peers":[`+good+`]}`, "129", "1290", 1), ErrDamaged},
		{"too large", `{"peers":[` + strings.Repeat(" ", maxFile), ErrDamaged},
		{"too many", `{"peers":[` + strings.Repeat("{},", maxPeers) + `{}]}`, ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "peers.json")
			wantErr(t, os.WriteFile(path, []byte(c.content), 0o600), nil)
			f := NewFile(path)
			wantErr(t, find(t, f, peer(1)), c.want)
			if c.want == ErrDamaged && c.name != "another checksum" {
				_, err := f.Register(peer(2))
				wantErr(t, err, ErrDamaged)
				if b, _ := os.ReadFile(path); string(b) != c.content {
					t.Error("a file that could not be read was overwritten")
				}
			}
		})
	}
	t.Run("a pipe", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "pipe")
		wantErr(t, unix.Mkfifo(path, 0o600), nil)
		wantErr(t, find(t, NewFile(path), peer(1)), ErrDamaged)
	})
	t.Run("a folder", func(t *testing.T) {
		wantErr(t, find(t, NewFile(t.TempDir()), peer(1)), ErrDamaged)
	})
	t.Run("locked", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "peers.json")
		wantErr(t, os.WriteFile(path, []byte(`{"peers":[]}`), 0o600), nil)
		held, err := os.Open(path)
		wantErr(t, err, nil)
		defer held.Close()
		wantErr(t, unix.Flock(int(held.Fd()), unix.LOCK_EX), nil)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err = NewFile(path).ByWorker(ctx, 1)
		wantErr(t, err, context.DeadlineExceeded)
	})
}
