// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestStream: lines that go in at one end come out at the other.
func TestStream(t *testing.T) {
	inside, outside, taken := forward(t)
	for _, flags := range [][]string{nil, {"--no-ticket"}, {"--listen", inside, "--advertise", outside}} {
		offer := filepath.Join(t.TempDir(), "offer.json")
		lines := strings.Repeat("a line\n\nand one of ünicode\n", 500)
		received := make(chan string)
		go func() {
			o := program(t, nil, append([]string{"stream", "receive", "--offer", offer}, flags...)...)
			if o.code != exitOK {
				t.Errorf("receive ends with %d: %s", o.code, o.stderr)
			}
			received <- o.stdout
		}()
		for range 1000 {
			if _, err := os.Stat(offer); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if o := fed(t, strings.NewReader(lines), nil, "stream", "send", "--to", offer); o.code != exitOK {
			t.Errorf("send ends with %d: %s", o.code, o.stderr)
		}
		if got := <-received; got != lines {
			t.Errorf("%d bytes came, %d were sent", len(got), len(lines))
		}
		if taken.Load() > 0 {
			continue // a mapping takes the connection all the same
		}
		// Nobody is there any more.
		if o := fed(t, strings.NewReader("x\n"), nil, "stream", "send", "--to", offer); o.code != exitNotThere {
			t.Errorf("sending to nobody ends with %d, want %d: %s", o.code, exitNotThere, o.stderr)
		}
	}
	if taken.Load() == 0 {
		t.Error("nobody came by the address that was advertised")
	}
	if o := program(t, nil, "stream", "receive", "--advertise", "localhost:1"); o.code == exitOK || !strings.Contains(o.stderr, `"localhost:1"`) {
		t.Errorf("a host name is advertised: exit code %d: %s", o.code, o.stderr)
	}
	for _, bad := range []string{"/no/such/file", "{}", `{"peer":1}`} {
		if o := program(t, nil, "stream", "send", "--to", bad); o.code != exitUsage {
			t.Errorf("offer %s: exit code %d, want %d: %s", bad, o.code, exitUsage, o.stderr)
		}
	}
}

// forward maps a port to one on which nobody listens yet, and counts the connections.
func forward(t *testing.T) (inside, outside string, taken *atomic.Int64) {
	t.Helper()
	var at [2]net.Listener
	for i := range at {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at[i] = l
	}
	inside, outside, taken = at[0].Addr().String(), at[1].Addr().String(), new(atomic.Int64)
	at[0].Close()
	t.Cleanup(func() { at[1].Close() })
	go func() {
		for {
			in, err := at[1].Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", inside)
			if err != nil {
				in.Close()
				continue
			}
			taken.Add(1)
			for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(c[0], c[1])
					c[0].Close()
					c[1].Close()
				}()
			}
		}
	}()
	return inside, outside, taken
}
