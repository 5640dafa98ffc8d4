// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// address is in the environment of a child that listens: where.
const address = "VELO_AGENT_DAEMON_TEST_ADDRESS"

var roles = map[string]func(){"listen": playListener, "renamed": playRenamed, "ask": playAsker}

// child is a process of this test that plays another part until it is killed.
type child struct {
	cmd   *exec.Cmd
	netns string // inode
	port  int
}

// play starts this test's binary in a role; it is ready when it has said its port.
func play(t *testing.T, role string, prepare func(*exec.Cmd)) *child {
	t.Helper()
	needProbes(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), roleIs(role), address+"=127.0.0.1:0")
	prepare(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting the other process: %v", err)
	}
	c := &child{cmd: cmd}
	t.Cleanup(func() { c.kill(t) })
	if _, err := fmt.Fscanln(out, &c.port); err != nil {
		t.Fatalf("the other process did not listen: %v", err)
	}
	ns, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "ns", "net"))
	if err != nil {
		t.Fatal(err)
	}
	c.netns = strings.TrimSuffix(strings.TrimPrefix(ns, "net:["), "]")
	return c
}

func roleIs(name string) string { return role + "=" + name }

// playAway listens on the port in a network namespace of its own.
func playAway(t *testing.T, port int) *child {
	t.Helper()
	return play(t, "listen", func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=0.0.0.0:%d", address, port))
	})
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if c.cmd.ProcessState != nil {
		return
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = c.cmd.Wait()
}

// playListener listens, says where and waits to be killed, or for the end of the
// process that started it.
func playListener() {
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp4", os.Getenv(address))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() { _, _ = io.Copy(c, c) }()
	}
}

// name is in the environment of a child that renames itself: how, quoted.
const name = "VELO_AGENT_DAEMON_TEST_NAME"

// playRenamed is playListener under another name.
func playRenamed() {
	if s, err := strconv.Unquote(os.Getenv(name)); err != nil || os.WriteFile("/proc/self/comm", []byte(s), 0) != nil {
		fmt.Fprintln(os.Stderr, "no such name")
		os.Exit(1)
	}
	playListener()
}

// playOnce runs this test's binary in a role as another user (nil: as this one), and
// returns what it prints.
func playOnce(t *testing.T, part string, cred *syscall.Credential, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), roleIs(part))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as %+v: %v: %s", cred, err, out)
	}
	return string(out)
}

func playAsker() {
	if err := askOverSocket(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
