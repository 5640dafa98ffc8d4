// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// findOwners fills the PIDs of the listeners from the descriptors of all processes.
func (h Host) findOwners(pids []int, ls []Listener, s *skips) {
	byInode := map[uint64][]int{}
	for i, l := range ls {
		if l.Inode != 0 {
			byInode[l.Inode] = append(byInode[l.Inode], i)
		}
	}
	if len(byInode) == 0 {
		return
	}
	for _, pid := range pids {
		s.add(h.eachSocket(pid, func(ino uint64) {
			for _, i := range byInode[ino] {
				if p := ls[i].PIDs; len(p) == 0 || p[len(p)-1] != pid {
					ls[i].PIDs = append(p, pid)
				}
			}
		}))
	}
}

// eachSocket calls f with the inode of each socket that the process holds. It
// makes no garbage per descriptor: a server may hold tens of thousands.
func (h Host) eachSocket(pid int, f func(inode uint64)) error {
	dir, err := os.Open(h.pidPath(pid, "fd"))
	if err != nil {
		return err
	}
	defer dir.Close()
	var buf [64]byte
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			n, err := unix.Readlinkat(int(dir.Fd()), name, buf[:])
			if err == unix.EACCES {
				return &fs.PathError{Op: "readlink", Path: h.pidPath(pid, "fd", name), Err: err}
			}
			if err != nil {
				continue // closed meanwhile
			}
			if ino, ok := socketInode(buf[:n]); ok {
				f(ino)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// socketInode reads "socket:[12345]".
func socketInode(link []byte) (uint64, bool) {
	v, ok := bytes.CutPrefix(link, []byte("socket:["))
	v, end := bytes.CutSuffix(v, []byte("]"))
	if !ok || !end {
		return 0, false
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return 0, false
	}
	return n, true
}
