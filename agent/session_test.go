// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
)

func TestWithoutBPF(t *testing.T) {
	srv := listen(t)
	s, err := Open(t.Context(), Options{Watch: Watch{Ports: []uint16{srv.port}}, NoBPF: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !errors.Is(s.Missing(), ErrNoSignal) {
		t.Errorf("missing is %v, want ErrNoSignal", s.Missing())
	}
	r := s.report(t)
	p := r.Ports[0]
	if p.Port != srv.port || p.TTFT != nil || p.Exchanges != nil {
		t.Errorf("port %d has TTFT %v and exchanges %v: absent is not zero", p.Port, p.TTFT, p.Exchanges)
	}
	if p.Accept == nil || p.Accept.Limit == 0 {
		t.Errorf("the accept queue is %+v, want its limit", p.Accept)
	}
}

// TestDepthWithoutBPF: what waits is told by the kernel's list alone.
func TestDepthWithoutBPF(t *testing.T) {
	srv := listen(t)
	for range 3 {
		c, err := net.Dial("tcp", srv.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	s, err := Open(t.Context(), Options{Watch: Watch{Ports: []uint16{srv.port}}, NoBPF: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if p := s.report(t).Ports[0]; p.Accept == nil || p.Accept.Depth != 3 {
		t.Errorf("the accept queue is %+v, want a depth of 3", p.Accept)
	}
}

func TestNothingThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	for name, c := range map[string]struct {
		watch Watch
		says  string
	}{
		"port":    {Watch{Ports: []uint16{free}}, "nothing listens on TCP port"},
		"process": {Watch{PIDs: []int{os.Getppid()}}, "listens on no TCP port"},
		"cgroup":  {Watch{Cgroups: []string{"/no/such/cgroup"}}, "/no/such/cgroup"},
	} {
		s, err := Open(t.Context(), Options{Watch: c.watch, NoBPF: true})
		if !errors.Is(err, ErrNotThere) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the error is %v, want one that says %q", name, err, c.says)
		}
		if s != nil {
			s.Close()
		}
	}
}

// TestTiersAgree: user space computes from the traced steps what the programs
// computed, with and without the scheduler's hooks.
func TestTiersAgree(t *testing.T) {
	for name, o := range map[string]Options{"all hooks": {}, "no scheduler": {NoSched: true}, "no send start": {NoSendStart: true}} {
		t.Run(name, func(t *testing.T) {
			srv := listen(t)
			var traced atomic.Int64
			o.Watch, o.TraceAll, o.ExactAccept = Watch{Ports: []uint16{srv.port}}, true, true
			o.OnTrace = func(*attribution.Trace) { traced.Add(1) }
			s := open(t, o)
			for range 5 {
				p := srv.connect(t)
				for range 20 {
					p.ask(t)
					for range 3 {
						p.answer(t)
					}
				}
			}
			r := s.report(t)
			if n := *r.Ports[0].Exchanges; n != 100 {
				t.Errorf("%d exchanges were counted, want 100", n)
			}
			if n := traced.Load(); n < 290 || n > 300 {
				t.Errorf("%d intervals were traced, want about 300", n)
			}
			if n := r.Agent.Lost["attribution/tiers_disagree"]; n != 0 {
				t.Errorf("the tiers disagree %d times", n)
			}
			if n := r.Agent.Lost["attribution/steps_truncated"]; n != 0 {
				t.Errorf("%d records did not hold their steps", n)
			}
		})
	}
}

// TestBrake: a drain that brings far more than its share is answered at once, and
// the next second without such a rate lets everything through again.
func TestBrake(t *testing.T) {
	srv := listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{srv.port}}})
	share := int(tracedPerSecond * drainEvery / time.Second)
	sample := func(exchanges int) uint32 {
		s.seen.mu.Lock()
		defer s.seen.mu.Unlock()
		s.brake(exchanges)
		return s.seen.feedback.last.Sample
	}
	if n := sample(8*share - 1); n != 1 {
		t.Errorf("one in %d is traced below the brake", n)
	}
	if n := sample(20 * share); n < 20 {
		t.Errorf("one in %d is traced after 20 times the share", n)
	}
	s.feedBack(time.Second)
	if n := sample(0); n != 1 {
		t.Errorf("one in %d is traced after a quiet second", n)
	}
}

// TestLeftBetweenHooks: data that left while no hook looked is dated by the socket's
// newest packet, not by the next write.
func TestLeftBetweenHooks(t *testing.T) {
	srv := listen(t)
	left := make(chan time.Duration, 8)
	s := open(t, Options{
		Watch: Watch{Ports: []uint16{srv.port}}, TraceAll: true,
		Only: map[string]string{"left_later": "none of them"},
		OnTrace: func(tr *attribution.Trace) {
			if tr.Kind == attribution.TraceTTFT {
				left <- tr.End
			}
		},
	})
	p := srv.connect(t)
	p.ask(t)
	p.fd(t, func(fd int) { must(t, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_CORK, 1)) })
	if _, err := io.WriteString(p.served, "an answer that is held by the cork\n"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	p.fd(t, func(fd int) { must(t, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_CORK, 0)) })
	uncorked := time.Duration(now(t))
	time.Sleep(40 * time.Millisecond)
	wrote := time.Duration(now(t))
	p.answer(t)
	select {
	case at := <-left:
		if at < uncorked-20*time.Millisecond || at > (uncorked+wrote)/2 {
			t.Errorf("it left %v after the cork was drawn, %v before the next write", at-uncorked, wrote-at)
		}
	case <-time.After(5 * time.Second):
		t.Error("no record came")
	}
	if n := s.report(t).Agent.Lost["attribution/tiers_disagree"]; n != 0 {
		t.Errorf("the tiers disagree %d times", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDiagnoseEndsWithItsContext(t *testing.T) {
	srv := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(map[string]bool)
	r, err := Diagnose(ctx, Options{Watch: Watch{Ports: []uint16{srv.port}}, NoBPF: true}, time.Hour,
		func(what string, done, whole time.Duration) {
			told[what] = true
			if done < 0 || done > whole {
				t.Errorf("%s: %v of %v", what, done, whole)
			}
			if what == "measuring" {
				cancel()
			}
		})
	if !errors.Is(err, ErrNoSignal) || r == nil || len(r.Ports) != 1 {
		t.Errorf("the report is %v, %v; want what was seen until then", r, err)
	}
	if !told["attaching"] || !told["measuring"] {
		t.Errorf("told %v", told)
	}
	if _, err := Diagnose(t.Context(), Options{Watch: Watch{Ports: []uint16{1}}, NoBPF: true}, time.Second,
		func(string, time.Duration, time.Duration) {}); !errors.Is(err, ErrNotThere) {
		t.Errorf("the error is %v, want ErrNotThere", err)
	}
}

func TestProbesOfOnesOwn(t *testing.T) {
	sheet, err := Probes(t.Context(), nil)
	if sheet == nil {
		t.Fatal(err)
	}
	if err != nil && !errors.Is(err, ErrNoSignal) {
		t.Error(err)
	}
	seen := map[string]diagnosis.Coverage{}
	for _, c := range sheet.Signals {
		seen[c.Signal] = c
		if c.Missing == (c.Rung != "") {
			t.Errorf("%s: missing %v with rung %q", c.Signal, c.Missing, c.Rung)
		}
		for _, r := range c.BetterRefused {
			if r.Why == "" {
				t.Errorf("%s: %s was refused without a reason", c.Signal, r.Rung)
			}
		}
	}
	if err == nil && len(sheet.Programs) == 0 {
		t.Error("everything is attached and no program has a cost")
	}
}
