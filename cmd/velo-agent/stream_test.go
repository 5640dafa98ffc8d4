// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/transport/maptest"
)

// TestStream: lines that go in at one end come out at the other.
func TestStream(t *testing.T) {
	m := maptest.Forward(t)
	for _, flags := range [][]string{nil, {"--no-ticket"}, {"--listen", m.Inside, "--advertise", m.Outside}} {
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
		if m.Taken.Load() > 0 {
			continue // a mapping takes the connection all the same
		}
		// Nobody is there any more.
		if o := fed(t, strings.NewReader("x\n"), nil, "stream", "send", "--to", offer); o.code != exitNotThere {
			t.Errorf("sending to nobody ends with %d, want %d: %s", o.code, exitNotThere, o.stderr)
		}
	}
	if m.Taken.Load() == 0 {
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
