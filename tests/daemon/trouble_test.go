// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPortInUse: the socket is served, and the port as soon as it is free.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	d := prepare(t, "")
	l := listen(t, d.Listen)
	defer l.Close()
	d.run(t)
	d.ready(t) // over the socket
	time.Sleep(5 * time.Second)
	if n := len(lines(d.said(), "metrics are not served yet", d.Listen)); n != 1 {
		t.Errorf("the log says %d times, not once, that the port is in use", n)
	}
	l.Close()
	eventually(t, "served", patience, func() error {
		_, err := d.metrics()
		return err
	})
	d.stop(t)
}

// TestReadyLooksItself: it needs no scrape and no snapshot to find out.
func TestReadyLooksItself(t *testing.T) {
	t.Parallel()
	d := start(t, "record: {enabled: false, every: 1h}")
	if err := unix.Kill(d.helper(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "/readyz says no", patience, func() error {
		status, body, err := get(d.tcp, "/readyz")
		if err == nil && status != http.StatusServiceUnavailable {
			err = fmt.Errorf("it says %d %s", status, body)
		}
		return err
	})
}

// TestSharedFolder: a folder that others use is not given to the daemon's user, and a
// file that is no socket is not removed.
func TestSharedFolder(t *testing.T) {
	t.Parallel()
	d := prepare(t, "")
	folder := filepath.Dir(d.Socket())
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"other", filepath.Base(d.Socket())} {
		if err := os.WriteFile(filepath.Join(folder, f), []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.run(t)
	eventually(t, "metrics without a socket", patience, func() error {
		_, err := d.metrics()
		return err
	})
	var st unix.Stat_t
	if err := unix.Stat(folder, &st); err != nil || st.Uid != 0 {
		t.Errorf("the folder belongs to user %d now (%v)", st.Uid, err)
	}
	if b, err := os.ReadFile(d.Socket()); string(b) != "precious" {
		t.Errorf("the file in the socket's place holds %q, %v", b, err)
	}
	if lines(d.said(), "is there and no socket") == nil {
		t.Error("the log does not say why there is no socket")
	}
	d.stop(t)
	if _, err := os.Lstat(d.Socket()); err != nil {
		t.Errorf("the file in the socket's place: %v", err)
	}
}

// TestPrivilegedPort: without rights the daemon can never have it, says so once and does
// not try for ever; what the socket serves is served.
func TestPrivilegedPort(t *testing.T) {
	t.Parallel()
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err != nil || strings.TrimSpace(string(b)) != "1024" {
		t.Skipf("needs the usual privileged ports: they end below %q (%v)", b, err)
	}
	var l net.Listener
	for port := 1023; l == nil && port > 600; port-- {
		l, _ = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)) // in use
	}
	if l == nil {
		t.Skip("needs the right to listen on a port below 1024")
	}
	defer l.Close()
	d := prepare(t, "listen: "+l.Addr().String())
	d.run(t)
	d.ready(t)
	said := func() error {
		if lines(d.said(), "will not be served over TCP", l.Addr().String(), "a port above 1023") == nil {
			return errors.New("the log does not say so, and what to do")
		}
		return nil
	}
	eventually(t, "given up", patience, said)
	time.Sleep(3 * time.Second) // longer than one try
	if n := len(lines(d.said(), l.Addr().String(), "level=ERROR")); n != 2 {
		t.Errorf("the log speaks of the port %d times, not at the first start and when it is given up", n)
	}
	d.stop(t)
}

// TestRecordNotWritable: metrics are alive, the failure is counted, and the record
// begins when its folder is mended.
func TestRecordNotWritable(t *testing.T) {
	t.Parallel()
	d := prepare(t, "")
	if err := os.MkdirAll(filepath.Join(d.Record(), "of another"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.run(t)
	d.ready(t)
	d.fulfils(t, "tried again", func(n float64) bool { return n >= 3 }, "velo_agent_record_failures_total", "reason", "open")
	d.becomes(t, 0, "velo_agent_record_snapshots")
	if status, body, err := get(d.unix, "/api/v1/window"); status != http.StatusNotFound || !strings.Contains(body, "record") {
		t.Errorf("asked for the past: %d %q, %v", status, body, err)
	}
	for _, dir := range []string{filepath.Dir(d.Record()), d.Record()} {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	d.fulfils(t, "a snapshot", func(n float64) bool { return n >= 1 }, "velo_agent_record_snapshots")
	if status, body, err := get(d.unix, "/api/v1/window"); status != http.StatusOK {
		t.Errorf("asked for the past when there is one: %d %.200q, %v", status, body, err)
	}
	for _, said := range []string{"windows are not recorded", "windows are recorded again"} {
		if n := len(lines(d.said(), said)); n != 1 {
			t.Errorf("the log says %d times, not once: %s", n, said)
		}
	}
	d.stop(t)
}

// TestDiskFull: metrics are alive, the failure is counted, and the record goes on
// when there is room again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	d := prepare(t, "")
	if err := os.MkdirAll(d.Record(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", d.Record(), "tmpfs", 0, "size=128k,mode=0700,uid=65534,gid=65534"); err != nil {
		t.Skipf("needs a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.Record(), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d.run(t)
	d.ready(t)
	d.fulfils(t, "a snapshot", func(n float64) bool { return n >= 1 }, "velo_agent_record_snapshots")
	filler := filepath.Join(d.Record(), "filler")
	fill := func() {
		f, err := os.OpenFile(filler, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for {
			if _, err := f.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}
	eventually(t, "the failure counted", patience, func() error {
		fill() // also what the record itself gave up
		p, err := d.metrics()
		if err != nil {
			return err
		}
		if n, ok := p.value("velo_agent_record_failures_total", "reason", "disk_full"); !ok || n == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	had := d.recorded(t).Snapshots
	eventually(t, "snapshots again", patience, func() error {
		if n := d.recorded(t).Snapshots; n <= had {
			return fmt.Errorf("%d, not more than %d", n, had)
		}
		return nil
	})
	d.stop(t)
}

// TestServerReturns: the figures of a server that ends and comes back go on, from its
// first exchange, and the others never stop.
func TestServerReturns(t *testing.T) {
	t.Parallel()
	steady, first := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d, %d]}", steady.port, first.port))
	first.ask(t, 3)
	steady.ask(t, 3)
	d.becomes(t, 3, "velo_agent_exchanges_total", "port", first.label())
	first.http.Close()
	steady.ask(t, 3)
	d.becomes(t, 6, "velo_agent_exchanges_total", "port", steady.label())
	d.becomes(t, 3, "velo_agent_exchanges_total", "port", first.label())

	again := serve(t, first.address())
	again.ask(t, 4)
	d.becomes(t, 3+4, "velo_agent_exchanges_total", "port", again.label())
	d.becomes(t, 6, "velo_agent_exchanges_total", "port", steady.label())
	d.becomes(t, 1, "velo_agent_helper_up")
}

// TestNamespaceVanishes: the figures of the others go on, also of the same port.
func TestNamespaceVanishes(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	away := playAway(t, s.port) // the same port, elsewhere
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}", s.port))
	d.becomes(t, 2, "velo_agent_watched_ports")
	s.ask(t, 3)
	d.becomes(t, 3, "velo_agent_exchanges_total", "port", s.label(), "netns", "")
	p, err := d.metrics()
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := p.value("velo_agent_exchanges_total", "port", s.label(), "netns", away.netns); !ok || n != 0 {
		t.Errorf("the port of the other namespace has %v exchanges (there: %v)", n, ok)
	}

	away.kill(t)
	ns := filepath.Join("/proc", strconv.Itoa(away.cmd.Process.Pid), "ns", "net")
	if _, err := os.Stat(ns); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the namespace is still there: %v", err)
	}
	s.ask(t, 3)
	d.becomes(t, 6, "velo_agent_exchanges_total", "port", s.label(), "netns", "")
	d.becomes(t, 1, "velo_agent_helper_up")
	for _, level := range []string{"level=ERROR", "level=WARN"} {
		if l := lines(d.said(), level); len(l) > 0 {
			t.Errorf("the log complains: %v", l)
		}
	}
}
