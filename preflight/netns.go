// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// netNSResolver finds the network namespace of processes. Where the link may
// not be read, the inode of /proc/PID/net/tcp, which anybody may stat and which
// each namespace has its own of, tells whether it is one already known.
type netNSResolver struct {
	h     Host
	table map[uint64]uint64 // inode of net/tcp → inode of the namespace
}

// newNetNSResolver knows the namespace of this process to begin with.
func (h Host) newNetNSResolver() *netNSResolver {
	r := &netNSResolver{h: h, table: map[uint64]uint64{}}
	ns, err := readNSLink(h.path("self", "ns", "net"))
	if err != nil {
		return r
	}
	if ino, err := inode(h.path("self", "net", "tcp")); err == nil {
		r.table[ino] = ns
	}
	return r
}

// of returns the inode of pid's network namespace, or an error that wraps
// fs.ErrPermission, fs.ErrNotExist or ErrMalformed.
func (r *netNSResolver) of(pid int) (uint64, error) {
	ns, err := readNSLink(r.h.pidPath(pid, "ns", "net"))
	if !errors.Is(err, fs.ErrPermission) {
		return ns, err
	}
	if ino, e := inode(r.h.pidPath(pid, "net", "tcp")); e == nil {
		if ns, ok := r.table[ino]; ok {
			return ns, nil
		}
	}
	return 0, err
}

// readNSLink reads "net:[4026531992]".
func readNSLink(name string) (uint64, error) {
	link, err := os.Readlink(name)
	if err != nil {
		return 0, err
	}
	v, ok := strings.CutPrefix(link, "net:[")
	v, end := strings.CutSuffix(v, "]")
	n, err := strconv.ParseUint(v, 10, 64)
	if !ok || !end || err != nil {
		return 0, malformed(name, 1, "a link net:[NUMBER]", link)
	}
	return n, nil
}

// inode returns the inode number of a file.
func inode(name string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return st.Ino, nil
}

// InNetNS runs f on a thread that is inside the network namespace of pid, and
// returns its error. f must stay on its goroutine: what it starts runs outside.
// The thread goes back to the scheduler only in the namespace that it came from;
// if it cannot, it ends. Another namespace than one's own needs CAP_SYS_ADMIN
// (the error wraps [fs.ErrPermission]); one's own needs nothing.
func (h Host) InNetNS(pid int, f func() error) error {
	err := errors.New("running in a network namespace: the function ended its goroutine")
	done := make(chan struct{})
	go func() {
		defer close(done) // also where f calls runtime.Goexit
		runtime.LockOSThread()
		// The main thread cannot end, and /proc/PID/ns shows its namespaces:
		// while it is locked here, the call runs on another one.
		if unix.Gettid() == os.Getpid() {
			err = h.InNetNS(pid, f)
			runtime.UnlockOSThread()
			return
		}
		home := true
		defer func() {
			if home {
				runtime.UnlockOSThread()
			}
		}()
		err = h.enterAndRun(pid, f, &home)
	}()
	<-done
	return err
}

// enterAndRun runs f in pid's namespace on the calling thread, which the caller
// has locked; home is false while, and if, the thread is not back where it was.
func (h Host) enterAndRun(pid int, f func() error, home *bool) error {
	target, err := os.Open(h.pidPath(pid, "ns", "net"))
	if err != nil {
		if errors.Is(err, fs.ErrPermission) && h.sameNetNS(pid) {
			return f()
		}
		return fmt.Errorf("opening the network namespace of process %d: %w", pid, err)
	}
	defer target.Close()
	own, err := os.Open(h.path("thread-self", "ns", "net"))
	if err != nil {
		return fmt.Errorf("opening the thread's own network namespace: %w", err)
	}
	defer own.Close()
	if same, err := sameFile(target, own); err != nil || same {
		if err != nil {
			return fmt.Errorf("comparing network namespaces: %w", err)
		}
		return f()
	}
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network namespace of process %d: %w", pid, err)
	}
	*home = false
	defer func() { *home = unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil }()
	return f()
}

// sameNetNS reports, without any right, whether pid shares this thread's namespace.
func (h Host) sameNetNS(pid int) bool {
	theirs, err := inode(h.pidPath(pid, "net", "tcp"))
	if err != nil {
		return false
	}
	ours, err := inode(h.path("thread-self", "net", "tcp"))
	return err == nil && ours == theirs
}

func sameFile(a, b *os.File) (bool, error) {
	x, err := a.Stat()
	if err != nil {
		return false, err
	}
	y, err := b.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(x, y), nil
}

// NetSysctl returns the value that key, like "net/core/somaxconn", has inside
// the network namespace of pid. A key that the namespace does not have is
// [fs.ErrNotExist].
func (h Host) NetSysctl(pid int, key string) (string, error) {
	if !filepath.IsLocal(key) || filepath.Clean(key) != key || !strings.HasPrefix(key, "net/") {
		return "", fmt.Errorf("reading sysctl %q: want a key like net/core/somaxconn: %w", key, fs.ErrInvalid)
	}
	var b []byte
	// /proc/sys/net shows the namespace of the thread that opens it.
	err := h.InNetNS(pid, func() (err error) {
		b, _, err = readSmall(h.path("sys", key), maxSmall)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading sysctl %s of process %d: %w", key, pid, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Somaxconn returns net.core.somaxconn of the network namespace of pid: the most
// that an accept queue created there may hold.
func (h Host) Somaxconn(pid int) (int, error) {
	v, err := h.NetSysctl(pid, "net/core/somaxconn")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return 0, malformed(h.path("sys", "net", "core", "somaxconn"), 1, "a number", v)
	}
	return int(n), nil
}

// initPIDNS is the inode of the first pid namespace (PROC_PID_INIT_INO).
const initPIDNS = 0xEFFFFFFC

// InInitPIDNS reports whether this process's pids are those that the kernel's
// own events carry; in a container without hostPID they are not.
func (h Host) InInitPIDNS() (bool, error) {
	ino, err := inode(h.path("self", "ns", "pid"))
	if err != nil {
		return false, fmt.Errorf("reading the pid namespace: %w", err)
	}
	return ino == initPIDNS, nil
}
