// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is this program started again in another part. It is asked line by line, and
// ends with its input.
type Child struct {
	PID int

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartChild starts a child with the arguments; where alone, in a network namespace of
// its own, which ends with it.
func StartChild(alone bool, args ...string) (*Child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding one's own program: %w", err)
	}
	c := &Child{cmd: exec.Command(exe, args...)}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if alone {
		c.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the child %s: %w", args[0], err)
	}
	c.PID = c.cmd.Process.Pid
	return c, nil
}

// Ask sends a request of several words and returns the answer.
func (c *Child) Ask(words ...any) (string, error) {
	what := strings.TrimSuffix(fmt.Sprintln(words...), "\n")
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		return "", fmt.Errorf("asking child %d to %s: %w", c.PID, what, err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("asking child %d to %s: %w", c.PID, what, err)
	}
	line = strings.TrimSpace(line)
	if text, failed := strings.CutPrefix(line, "error "); failed {
		return "", fmt.Errorf("asking child %d to %s: %s", c.PID, what, text)
	}
	return line, nil
}

// Stop ends the child: with its input, or else it is killed.
func (c *Child) Stop() {
	c.in.Close()
	kill := time.AfterFunc(3*time.Second, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.cmd.Wait() // how it ended does not matter
}

// Kill ends it at once, with whatever it was doing.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// Serve is the child's end: it answers until the parent has gone.
func Serve(answer func(words []string) (string, error)) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		text, err := answer(strings.Fields(in.Text()))
		if err != nil {
			text = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(text)
	}
}

// LoopbackUp brings the loopback device of a new network namespace up.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req)
	if err == nil {
		req.SetUint16(req.Uint16() | unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
	}
	if err != nil {
		return fmt.Errorf("bringing the loopback device up: %w", err)
	}
	return nil
}

// Cgroup makes a cgroup, in the first hierarchy that lets it, and puts the child into
// it. name is its path as in /proc/PID/cgroup; remove needs it to be empty.
func (c *Child) Cgroup() (name string, remove func() error, err error) {
	name = fmt.Sprintf("/velo-live-%d", c.PID)
	var errs []error
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/pids"} {
		dir := root + name
		if err := os.Mkdir(dir, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		err := enter(dir, c.PID)
		if err == nil {
			return name, func() error { return os.Remove(dir) }, nil
		}
		errs = append(errs, err, os.Remove(dir))
	}
	return "", nil, fmt.Errorf("making a cgroup: %w", errors.Join(errs...))
}

// enter fails where dir is no cgroup: nothing made its files then.
func enter(dir string, pid int) error {
	f, err := os.OpenFile(dir+"/cgroup.procs", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, pid)
	return errors.Join(err, f.Close())
}
