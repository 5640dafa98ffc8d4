// SPDX-License-Identifier: Apache-2.0

package privileged

import (
	"fmt"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// HelperFD is the helper's end of the socket pair.
const HelperFD = 3

// Spawn starts cmd as a helper and returns the daemon's end of the socket pair, which
// is inherited at exec. The helper ends when that end is closed, so with the daemon.
func Spawn(cmd *exec.Cmd) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket pair for the helper: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "helper"), os.NewFile(uintptr(pair[1]), "daemon")
	defer theirs.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("starting the helper: %w", err)
	}
	return ours, nil
}

// Inherit closes f and returns a copy of its descriptor that survives exec: one that
// no finalizer closes before.
func Inherit(f *os.File) (int, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 0)
	if err != nil {
		return 0, fmt.Errorf("keeping %s open: %w", f.Name(), err)
	}
	return fd, nil
}

// Conn turns an inherited descriptor into a connection; what it starts inherits it
// no further.
func Conn(fd int) (net.Conn, error) {
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "inherited")
	if f == nil {
		return nil, fmt.Errorf("descriptor %d was not inherited", fd)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("using the inherited descriptor %d: %w", fd, err)
	}
	return c, nil
}
