// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHostileHTTP: whatever reaches the port, metrics are answered throughout, few
// descriptors and goroutines are held, and none are kept.
//
// It runs alone: looking for new listeners takes a share of the time, and takes long
// beside ten thousand connections.
func TestHostileHTTP(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}", s.port))
	s.ask(t, 3)
	d.becomes(t, 3, "velo_agent_exchanges_total", "port", s.label())
	before := d.holds(t)
	for _, c := range []struct {
		name   string
		attack func(*testing.T, *daemon)
	}{
		{"slow-loris", slowLoris},
		{"idle connections", idleConnections},
		{"readers that do not read", deadReaders},
		{"clients that do not wait", impatient},
		{"odd Accept headers", oddAccept},
		{"long queries", longQueries},
		{"malformed requests", malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := d.watch(t)
			c.attack(t, d)
			w.end(t)
			eventually(t, "back to what was held before", patience, func() error {
				d.tcp.CloseIdleConnections()
				now := d.holds(t)
				if now.descriptors > before.descriptors+slack || now.goroutines > before.goroutines+slack {
					return fmt.Errorf("%+v, before %+v", now, before)
				}
				return nil
			})
		})
	}
	if p, err := d.metrics(); err != nil || len(p) == 0 {
		t.Errorf("in the end: %d families, %v", len(p), err)
	}
}

// slack is for connections of the test itself, and timers.
const slack = 8

// mostHeld bounds descriptors at any time: connections of both servers, and some.
const mostHeld = 2*256 + 64

// holdings are what the daemon holds.
type holdings struct{ descriptors, goroutines int }

func (d *daemon) holds(t *testing.T) holdings {
	t.Helper()
	return holdings{descriptors(t, d.PID), int(d.now(t, "go_goroutines"))}
}

// witness scrapes like Prometheus while an attack goes on.
type witness struct {
	stop    chan struct{}
	done    chan struct{}
	scrapes atomic.Int64
	most    int
	errs    []error
}

func (d *daemon) watch(t *testing.T) *witness {
	w := &witness{stop: make(chan struct{}), done: make(chan struct{})}
	c := client(t, "tcp", d.Listen)
	go func() {
		defer close(w.done)
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			status, body, err := get(c, "/metrics")
			var p page
			if err == nil {
				p, err = parse(body)
			}
			if n, ok := p.value("velo_agent_exchanges_total"); err == nil && (status != http.StatusOK || !ok || n != 3) {
				err = fmt.Errorf("%d: %.200s", status, body)
			}
			if err != nil && len(w.errs) < 5 {
				w.errs = append(w.errs, err)
			}
			w.most = max(w.most, descriptors(t, d.PID))
			w.scrapes.Add(1)
		}
	}()
	return w
}

// end waits for some scrapes more, and judges.
func (w *witness) end(t *testing.T) {
	t.Helper()
	for enough := w.scrapes.Load() + 3; w.scrapes.Load() < enough; {
		time.Sleep(10 * time.Millisecond)
	}
	close(w.stop)
	<-w.done
	if err := errors.Join(w.errs...); err != nil {
		t.Errorf("scrapes meanwhile: %v", err)
	}
	if w.most > mostHeld {
		t.Errorf("the daemon held %d descriptors, at most %d are wanted", w.most, mostHeld)
	}
}

// slowLoris sends requests a byte now and then, on more connections than are held.
func slowLoris(t *testing.T, d *daemon) {
	conns := dialMany(t, d, 300)
	request := "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: "
	for i := range 30 {
		for _, c := range conns {
			_, _ = c.Write([]byte{request[i]}) // it may be cut off: that is the point
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// idleConnections says nothing on very many connections.
func idleConnections(t *testing.T, d *daemon) {
	n := 10_000
	if testing.Short() {
		n = 2000
	}
	roomFor(t, n+1000)
	for range n / 500 {
		dialMany(t, d, 500)
	}
}

// dialMany opens connections that the test's end closes.
func dialMany(t *testing.T, d *daemon, n int) (conns []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.DialTimeout("tcp4", d.Listen, patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	return conns
}

// roomFor makes this process able to hold n descriptors.
func roomFor(t *testing.T, n int) {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	if l.Cur >= uint64(n) {
		return
	}
	l.Cur = uint64(n)
	l.Max = max(l.Max, l.Cur)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Skipf("needs %d descriptors: %v", n, err)
	}
}

// deadReaders ask for pages that nobody else asks for, and read none until they leave.
func deadReaders(t *testing.T, d *daemon) {
	for i := range 40 {
		c, err := narrow(d.Listen)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for j := range 5 {
			fmt.Fprintf(c, "GET /metrics?name[]=velo_agent_ttft_seconds&reader=%d.%d HTTP/1.1\r\nHost: x\r\n\r\n", i, j)
		}
	}
	time.Sleep(time.Second)
}

// impatient asks for what needs a reading of the probes and leaves at once: the helper
// must not be given up for that.
func impatient(t *testing.T, d *daemon) {
	for i := range 60 {
		network, address, path := "tcp4", d.Listen, "/readyz"
		if i%2 == 0 {
			network, address, path = "unix", d.Socket(), "/api/v1/measured"
		}
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		time.Sleep(time.Duration(i%20) * 100 * time.Microsecond)
		c.Close()
		time.Sleep(50 * time.Millisecond) // a reading serves a second
	}
	d.becomes(t, 1, "velo_agent_helper_up")
}

// many runs f for 0..n-1, a few dozen at a time.
func many(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := atomic.Int64{}
	for range 48 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

func oddAccept(t *testing.T, d *daemon) {
	c := client(t, "tcp", d.Listen)
	many(1000, func(i int) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://daemon/metrics", nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Accept", fmt.Sprintf("application/x-odd-%d;q=0.%d, text/plain;version=%d", i, i, i))
		req.Header.Set("Accept-Encoding", fmt.Sprintf("x-odd-%d", i))
		resp, err := c.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		if status, body, err := answerOf(resp); err != nil || status != http.StatusOK {
			t.Errorf("%d %.200s, %v", status, body, err)
		} else if i%50 == 0 {
			if _, err := parse(body); err != nil {
				t.Error(err)
			}
		}
	})
}

func longQueries(t *testing.T, d *daemon) {
	c := client(t, "tcp", d.Listen)
	many(200, func(i int) {
		if status, body, err := get(c, fmt.Sprintf("/metrics?%d=%s", i, strings.Repeat("x", 8<<10))); err != nil || status != http.StatusOK {
			t.Errorf("%d %.200s, %v", status, body, err)
		}
	})
	for _, path := range []string{"/metrics", "/api/v1/report", "/readyz", "/"} {
		status, _, err := get(c, path+"?"+strings.Repeat("for=1s&", 1<<17))
		if err == nil && status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s with a query of a megabyte is answered with %d", path, status)
		}
	}
	for _, q := range []string{"for=" + strings.Repeat("9", 4096), "for=-1s", "for=1e99h", "at=" + strings.Repeat("\x00", 10), "at=99999999-01-01", "for=", "at=&for=%zz"} {
		if status, body, err := get(c, "/api/v1/report?"+strings.ReplaceAll(q, "\x00", "%00")); err != nil || status >= 500 || len(body) > 64<<10 {
			t.Errorf("?%.40s is answered with %d, %d bytes, %v", q, status, len(body), err)
		}
	}
}

// malformed sends what is no request, or none that is taken.
func malformed(t *testing.T, d *daemon) {
	for name, c := range map[string]struct{ send, want string }{
		"noise":              {"\x00\xff\x1b[2J\r\n\r\n", "400"},
		"no host":            {"GET /metrics HTTP/1.1\r\n\r\n", "400"},
		"two hosts":          {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
		"an old protocol":    {"GET /metrics HTTP/0.9\r\nHost: x\r\n\r\n", "505"},
		"a header too long":  {"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20), "431"},
		"too many headers":   {"GET /metrics HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 100_000), "431"},
		"a split header":     {"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", "400"},
		"lengths that fight": {"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "400"},
		"another method":     {"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
		"reload over TCP":    {"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "404"},
		"figures over TCP":   {"GET /api/v1/measured HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
		"a way out":          {"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "307"},
		"a proxy's request":  {"CONNECT example.invalid:443 HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
	} {
		conn, err := net.DialTimeout("tcp4", d.Listen, patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		go func() { _, _ = io.WriteString(conn, c.send) }() // the answer may come before all is sent
		line, err := bufio.NewReader(conn).ReadString('\n')
		if code := strings.Fields(line + " ? ?")[1]; code != c.want {
			t.Errorf("%s is answered with %q, not %s (%v)", name, line, c.want, err)
		}
	}
}
