// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/diagnosis"
)

// terminal collects what is drawn; awaits waits for a text and forgets what came
// before.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (d *terminal) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *terminal) awaits(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * ms) {
		d.mu.Lock()
		all := d.text.String()
		found := strings.Contains(all, text)
		if found {
			d.text.Reset()
		}
		d.mu.Unlock()
		if found {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q was never drawn; the terminal ends with %q", text, all[max(0, len(all)-2000):])
		}
	}
}

// growing is a source whose every reading holds 10 exchanges more. It fails while
// it is away, and tells whether two asked at once.
type growing struct {
	away, busy, twice atomic.Bool
	n                 atomic.Int64
}

func (g *growing) Measure(context.Context) (*diagnosis.Measured, error) {
	if !g.busy.CompareAndSwap(false, true) {
		g.twice.Store(true)
	}
	defer g.busy.Store(false)
	n := int(g.n.Add(1))
	if g.away.Load() {
		return nil, errors.New("the daemon is away; start it")
	}
	m := node(served(8000, "python3", 10*n, 0, 40*ms))
	m.Window = time.Duration(n) * time.Second
	return m, nil
}

func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	keys, typed := io.Pipe()
	defer keys.Close()
	var drawn terminal
	g := &growing{}
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), g, Options{Interval: 20 * ms, In: keys, Out: &drawn})
	}()
	for _, step := range []struct{ awaits, types string }{
		{"8000 python3", ""},
		{"the daemon is away; start it", "\r"},
		{"Where TTFT goes", "\t"},
		{"4f2a.0", "c"},
		{"send_start", "p"},
		{"PAUSED", "pq"},
	} {
		drawn.awaits(t, step.awaits)
		g.away.Store(step.types == "")
		if _, err := io.WriteString(typed, step.types); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if g.twice.Load() {
		t.Error("the source was asked twice at once")
	}
	after := g.n.Load()
	time.Sleep(60 * ms)
	if g.n.Load() != after {
		t.Error("the source was asked after the end")
	}
}

// TestRunJoins ends the view by its context while a reading is under way.
func TestRunJoins(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	var done atomic.Bool
	source := sourceFunc(func(ctx context.Context) (*diagnosis.Measured, error) {
		cancel()
		<-ctx.Done()
		time.Sleep(50 * ms)
		done.Store(true)
		return nil, ctx.Err()
	})
	if err := Run(ctx, source, Options{In: strings.NewReader(""), Out: io.Discard, NoAltScreen: true}); err != nil {
		t.Error(err)
	}
	if !done.Load() {
		t.Error("Run returned before the reading did")
	}
}

func TestOnce(t *testing.T) {
	g := &growing{}
	r, err := Once(t.Context(), g, Options{Interval: ms})
	if err != nil || r.WindowS != 1 || *r.Ports[0].Exchanges != 10 {
		t.Fatalf("one window is %+v, %v; want 10 exchanges in 1 s", r, err)
	}
	g.away.Store(true)
	if _, err := Once(t.Context(), g, Options{Interval: ms}); err == nil || !strings.Contains(err.Error(), "start it") {
		t.Errorf("a source that fails: %v", err)
	}
	g.away.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Once(ctx, g, Options{Interval: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestWriteText(t *testing.T) {
	for _, m := range []*diagnosis.Measured{four(), hundred(), node(), hostile()} {
		for _, o := range []Options{{}, {Width: 120}, {ASCII: true}} {
			var b bytes.Buffer
			if err := WriteText(&b, diagnosis.Build(m), o); err != nil {
				t.Fatal(err)
			}
			for i := range m.Ports {
				if !strings.Contains(b.String(), fmt.Sprintf(" %d ", m.Ports[i].Port)) {
					t.Errorf("port %d is missing from\n%s", m.Ports[i].Port, b.String())
				}
			}
			if strings.ContainsAny(b.String(), "\x1b\r>") || !strings.Contains(b.String(), "window 2.00s") {
				t.Errorf("not a plain page:\n%s", b.String())
			}
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("needs /dev/full: %v", err)
	}
	defer full.Close()
	if err := WriteText(full, diagnosis.Build(four()), Options{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
}

// onlyInitialise makes this test's binary end after its packages are initialised.
const onlyInitialise = "VELO_AGENT_TEST_INIT"

// TestTheTerminalIsNotAsked: a program that merely holds this package writes nothing
// to its terminal.
func TestTheTerminalIsNotAsked(t *testing.T) {
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	defer control.Close()
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	defer tty.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{onlyInitialise + "=1", "TERM=xterm-256color"}
	cmd.Stdin, cmd.Stdout = tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	waiting, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	if waiting != 0 {
		b := make([]byte, waiting)
		n, _ := control.Read(b)
		t.Errorf("the terminal was sent %q", b[:n])
	}
}
