// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startBusy starts a daemon whose page of metrics is too long for a slow reader's
// buffers.
func startBusy(t *testing.T, settings string) *daemon {
	t.Helper()
	var ports []string
	servers := make([]*server, 4)
	for i := range servers {
		servers[i] = serve(t, "127.0.0.1:0")
		ports = append(ports, servers[i].label())
	}
	d := start(t, fmt.Sprintf("watch: {ports: [%s]}\n%s", strings.Join(ports, ", "), settings))
	for _, s := range servers {
		s.ask(t, 2)
	}
	d.becomes(t, float64(2*len(servers)), "velo_agent_exchanges_total")
	return d
}

// slowReader has asked for a page and reads no further than it must.
type slowReader struct {
	conn net.Conn
	r    *bufio.Reader
}

// readSlowly asks for the metrics on a connection whose buffers hold a small part of
// them, and waits until the answer is under way.
func (d *daemon) readSlowly(t *testing.T) *slowReader {
	t.Helper()
	conn, err := narrow(d.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET /metrics?slow HTTP/1.1\r\nHost: daemon\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReaderSize(conn, 16)
	if _, err := r.Peek(1); err != nil {
		t.Fatal(err)
	}
	return &slowReader{conn, r}
}

// rest reads the answer to its end.
func (s *slowReader) rest(t *testing.T) string {
	t.Helper()
	resp, err := http.ReadResponse(s.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("the answer ends after %d bytes: %v", len(b), err)
	}
	return string(b)
}

// narrow connects with a small receive buffer and small segments, which keep the
// other side's send buffer small too.
func narrow(address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 2048); err == nil {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 536)
			}
		}); cerr != nil {
			return cerr
		}
		return err
	}}
	return dialer.Dial("tcp4", address)
}
