// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/diagnosis"
)

// role is set in the environment of a child that plays a test's other part.
const role = "VELO_AGENT_TEST_ROLE"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// open opens a session, or skips where this machine gives no probes.
func open(t *testing.T, o Options) *Session {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the session: %v", err)
		}
	})
	if errors.Is(s.Missing(), ErrNoSignal) {
		t.Skipf("needs the probes: %v", s.Missing())
	}
	return s
}

// kernelMaps gives the tests the maps that only the programs write.
func (s *Session) kernelMaps(t *testing.T) map[string]*ebpf.Map {
	t.Helper()
	f := reflect.ValueOf(s.maps).Elem().FieldByName("collection")
	return (*(**ebpf.Collection)(unsafe.Pointer(f.UnsafeAddr()))).Maps
}

// offset is where a field lies in a struct of the programs.
func offset(t *testing.T, of, name string) int {
	t.Helper()
	spec, err := btf.LoadSpec("../bpf/maps_x86_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	var s *btf.Struct
	if err := spec.TypeByName(of, &s); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Members {
		if m.Name == name {
			return int(m.Offset.Bytes())
		}
	}
	t.Fatalf("struct %s has no %s", of, name)
	return 0
}

// server is a listener of this process, plain TCP, and its newest connection.
type server struct {
	net.Listener
	port uint16
}

func listen(t *testing.T) *server {
	t.Helper()
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &server{l, uint16(l.Addr().(*net.TCPAddr).Port)}
}

// pair is a connection with both its ends here.
type pair struct {
	client, served *net.TCPConn
	fromClient     *bufio.Reader
	fromServer     *bufio.Reader
}

func (s *server) connect(t *testing.T) *pair {
	t.Helper()
	client, err := net.DialTimeout("tcp", s.Addr().String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	served, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{client, served} {
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return &pair{client.(*net.TCPConn), served.(*net.TCPConn), bufio.NewReader(served), bufio.NewReader(client)}
}

// ask and answer are the two halves of an exchange.
func (p *pair) ask(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.client, "a question\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.fromClient.ReadSlice('\n'); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) answer(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.served, "an answer of more than forty bytes, as tokens have\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.fromServer.ReadSlice('\n'); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) exchanges(t *testing.T, n int) {
	t.Helper()
	for range n {
		p.ask(t)
		p.answer(t)
	}
}

// fd hands f the descriptor of the served end.
func (p *pair) fd(t *testing.T, f func(fd int)) {
	t.Helper()
	raw, err := p.served.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { f(int(fd)) }); err != nil {
		t.Fatal(err)
	}
}

// setConn changes one 64-bit field of the served end's storage.
func (s *Session) setConn(t *testing.T, p *pair, field string, v uint64) {
	t.Helper()
	conns := s.kernelMaps(t)["conns"]
	at := offset(t, "conn", field)
	p.fd(t, func(fd int) {
		var b []byte
		if err := conns.Lookup(int32(fd), &b); err != nil {
			t.Fatal(err)
		}
		*(*uint64)(unsafe.Pointer(&b[at])) = v
		if err := conns.Update(int32(fd), b, ebpf.UpdateExist); err != nil {
			t.Fatal(err)
		}
	})
}

func now(t *testing.T) uint64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return uint64(ts.Nano())
}

// report measures and builds the report.
func (s *Session) report(t *testing.T) *diagnosis.Report {
	t.Helper()
	m, err := s.Measure()
	if err != nil {
		t.Fatal(err)
	}
	return diagnosis.Build(m)
}

// wantLost waits a little for the report to name the place and reason.
func (s *Session) wantLost(t *testing.T, place string) {
	t.Helper()
	var r *diagnosis.Report
	for range 50 {
		r = s.report(t)
		if r.Agent.Lost[place] > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if r.Agent.Lost[place] == 0 {
		t.Errorf("the report counts nothing under %s: %v", place, r.Agent.Lost)
	}
	for _, f := range r.Findings {
		if f.ID == "events_lost" {
			return
		}
	}
	t.Errorf("the report says nothing of what was lost: %v", fmt.Sprint(r.Findings))
}

// asChild runs the test of this name again in a child that is set up by prepare.
func isChild(name string) bool { return os.Getenv(role) == name }
