// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/bpf/accept"
)

func TestFullRingIsCounted(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}, TraceAll: true})
	p := srv.connect(t)
	ring := s.kernelMaps(t)["records"]
	// Nobody drains while the lock is held. A record takes more than 512 bytes.
	s.seen.mu.Lock()
	p.exchanges(t, int(ring.MaxEntries())/512)
	s.seen.mu.Unlock()
	s.wantLost(t, "records/ring_full")
	// And afterwards it goes on.
	before := s.report(t).Agent.Lost["records/ring_full"]
	p.exchanges(t, 10)
	if after := s.report(t).Agent.Lost["records/ring_full"]; after != before {
		t.Errorf("drained, the ring still lost %d records", after-before)
	}
}

func TestFullAcceptingMapIsCounted(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}, ExactAccept: true})
	if s.rung("accepted") != accept.RungExit {
		t.Skipf("the map is in use on the rung %s alone, and this kernel gives %s", accept.RungExit, s.rung("accepted"))
	}
	fill(t, s.kernelMaps(t)["accepting"], 8)
	p := srv.connect(t)
	p.exchanges(t, 1)
	s.wantLost(t, "accepting/map_full")
}

// fill puts keys into a hash map that no kernel address and no thread has, until
// there is no room left.
func fill(t *testing.T, m *ebpf.Map, valueSize int) {
	t.Helper()
	key, value := make([]byte, m.KeySize()), make([]byte, valueSize)
	for i := range m.MaxEntries() + 1 {
		binary.NativeEndian.PutUint32(key, 1<<30+i)
		err := m.Put(key, value)
		if errors.Is(err, unix.E2BIG) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%v took more than its %d entries", m, m.MaxEntries())
}

func TestFullThreadMarksAreCounted(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	if s.threads == nil {
		t.Skip("threads cannot be marked here")
	}
	fill(t, s.kernelMaps(t)["thread_marks"], 8)
	done, started := make(chan struct{}), make(chan struct{})
	go func() { // a thread that is new, and ends with its goroutine
		runtime.LockOSThread()
		close(started)
		<-done
	}()
	<-started
	defer close(done)
	s.seen.mu.Lock()
	s.seen.marks.tids = map[int]bool{} // as if all were new
	s.seen.mu.Unlock()
	if err := s.mark(); err != nil {
		t.Errorf("marking with a full map: %v", err)
	}
	s.wantLost(t, "threads/map_full")
}

func TestPortsBeyondTheBudgetAreCounted(t *testing.T) {
	var ports []uint16
	for range 131 {
		ports = append(ports, listen(t).port)
	}
	for name, w := range map[string]Watch{"by port": {Ports: ports}, "by process": {PIDs: []int{os.Getpid()}}} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Watch: w})
			s.wantLost(t, "ports/budget")
			if err := s.mark(); err != nil {
				t.Fatal(err)
			}
			r := s.report(t)
			if len(r.Ports) != 128 || r.Agent.Lost["ports/budget"] < 3 || r.Agent.Lost["ports/budget"] > 10 {
				t.Errorf("%d ports are watched and %d are not, want 128 and some 3, however often it looks", len(r.Ports), r.Agent.Lost["ports/budget"])
			}
		})
	}
}

func TestUndecodableRecordsAreCounted(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	ring := s.kernelMaps(t)["records"]
	const size = 16
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, -1),
			asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord), asm.StoreMem(asm.R10, -16, asm.R1, asm.DWord),
			asm.LoadMapPtr(asm.R1, ring.FD()),
			asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -size),
			asm.Mov.Imm(asm.R3, size), asm.Mov.Imm(asm.R4, 0),
			asm.FnRingbufOutput.Call(),
			asm.Mov.Imm(asm.R0, 0), asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, _, err := p.Test(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	s.wantLost(t, "records/undecodable")
}

func TestImpossibleTimesAreCounted(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	p := srv.connect(t)
	p.exchanges(t, 1)
	p.ask(t)
	s.setConn(t, p, "read_arrived", now(t)+uint64(time.Hour))
	p.answer(t)
	s.wantLost(t, "stages/impossible_time")
	p.exchanges(t, 1) // and it goes on
}

func TestWakeCollisionsAreCounted(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	if !s.held("wake_to_run") {
		t.Skipf("needs the scheduler's hooks: %v", s.hold("wake_to_run").Err())
	}
	p := srv.connect(t)
	wakes := s.kernelMaps(t)["wakes"]
	p.fd(t, func(fd int) {
		cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		if err != nil {
			t.Fatal(err)
		}
		other := make([]byte, wakes.ValueSize())
		binary.NativeEndian.PutUint64(other[offset(t, "wake", "cookie"):], cookie+1<<32)
		binary.NativeEndian.PutUint64(other[offset(t, "wake", "arrived"):], now(t))
		if err := wakes.Put(uint32(cookie%uint64(wakes.MaxEntries())), other); err != nil {
			t.Fatal(err)
		}
	})
	// The reader must be a thread that sleeps in read(2) when the question comes:
	// Go's poller serves both ends here and may be awake.
	f, err := p.served.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := unix.Read(fd, make([]byte, 64))
		read <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if _, err := p.client.Write([]byte("a question\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	s.wantLost(t, "wakes/collision")
}

// TestWritesThatWaitAreCounted: a client that reads nothing, and a server that
// then gives up.
func TestWritesThatWaitAreCounted(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	p := srv.connect(t)
	if err := p.client.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	p.ask(t)
	record := make([]byte, 4096)
	if err := p.served.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for range 4096 {
		if _, err := p.served.Write(record); err != nil {
			break
		}
	}
	s.wantLost(t, "writes/queue_full")
	if err := p.served.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	p.served.Close()
	s.wantLost(t, "writes/left_unseen")
}

func TestPortsThatAreNotThereAreCounted(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	p := srv.connect(t)
	at := offset(t, "conn", "port")
	p.fd(t, func(fd int) {
		conns := s.kernelMaps(t)["conns"]
		var b []byte
		if err := conns.Lookup(int32(fd), &b); err != nil {
			t.Fatal(err)
		}
		binary.NativeEndian.PutUint32(b[at:], 1<<20)
		if err := conns.Update(int32(fd), b, ebpf.UpdateExist); err != nil {
			t.Fatal(err)
		}
	})
	p.exchanges(t, 2)
	s.wantLost(t, "ports/no_index")
}

// TestLongRequestsTruncateTheRecorder: more steps than the flight recorder holds
// lie between the request's last byte and the answer.
func TestLongRequestsTruncateTheRecorder(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	p := srv.connect(t)
	if _, err := p.client.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	for range 100 { // each read is a step
		if _, err := p.served.Read(one); err != nil {
			t.Fatal(err)
		}
	}
	p.answer(t)
	s.wantLost(t, "attribution/steps_truncated")
}

// TestSocketsThatCannotBeMarkedAreCounted runs where a socket may hold less
// storage than a mark takes: the limit is set in a network namespace of its own.
func TestSocketsThatCannotBeMarkedAreCounted(t *testing.T) {
	const name = "no-storage"
	if !isChild(name) {
		inNetNS(t, name)
		return
	}
	if err := os.WriteFile("/proc/sys/net/core/optmem_max", []byte("512"), 0); err != nil {
		t.Skipf("this kernel limits the storage of all namespaces at once: %v", err)
	}
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	p := srv.connect(t)
	p.exchanges(t, 1) // the traffic goes on
	s.wantLost(t, "conns/storage")
}

// inNetNS runs the calling test once more, as a child in a new network namespace
// with loopback up.
func inNetNS(t *testing.T, name string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), role+"="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) {
		t.Skipf("making a network namespace: %v", err)
	}
	if _, why, ok := strings.Cut(string(out), "SKIP: "); ok && err == nil {
		t.Skipf("in the namespace: %s", strings.TrimSpace(why))
	}
	if err != nil {
		t.Errorf("in the namespace: %v\n%s", err, out)
	}
}

func init() {
	if os.Getenv(role) != "no-storage" {
		return
	}
	// The child's loopback is down.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return
	}
	req.SetUint16(unix.IFF_UP | uint16(net.FlagRunning))
	_ = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
