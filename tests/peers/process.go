// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopPatience is how long a process has after SIGTERM before it is killed.
const stopPatience = 5 * time.Second

// process is a running child. What it prints goes to two files, so that a line
// of its standard output is never broken by its log.
type process struct {
	name string
	out  string // file of its standard output
	log  string // file of its standard error
	pid  int
	done chan struct{} // closed when the child was reaped
	err  error         // how it ended; read after done
}

// startProcess runs argv with the environment env (nil for this process's own)
// in a process group of its own; path.out and path.log take its output. The
// child is killed when this process dies.
func startProcess(name, path string, env, argv []string) (*process, error) {
	out, err := os.Create(path + ".out")
	if err != nil {
		return nil, fmt.Errorf("opening the output of %s: %w", name, err)
	}
	defer out.Close()
	log, err := os.Create(path + ".log")
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}

	p := &process{name: name, out: out.Name(), log: log.Name(), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Pdeathsig fires when the thread that forked ends, so that thread is
		// kept until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// exited returns nil while the process runs, else an error with the last lines
// of its output.
func (p *process) exited() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended by itself (%s): %s", p.name, how, p.tail())
}

// tail returns the last lines of the log, or of the output where the log is
// empty.
func (p *process) tail() string {
	for _, path := range []string{p.log, p.out} {
		text, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); lines[0] != "" {
			return strings.Join(lines[max(0, len(lines)-5):], "\n")
		}
	}
	return "it printed nothing"
}

// stop ends the process with SIGTERM, or SIGKILL after stopPatience, and
// returns when it was reaped. It returns an error only where SIGKILL was
// needed. A second call does nothing.
func (p *process) stop() error {
	if err := p.signal(unix.SIGTERM); err != nil {
		return err
	}
	_ = p.signal(unix.SIGCONT) // a stopped process takes no SIGTERM
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	_ = p.signal(unix.SIGKILL)
	<-p.done
	return fmt.Errorf("stopping %s: it ignored SIGTERM for %v and was killed", p.name, stopPatience)
}

// signal sends sig unless the process was reaped already.
func (p *process) signal(sig unix.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := unix.Kill(p.pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("sending signal %v to %s: %w", sig, p.name, err)
	}
	return nil
}
