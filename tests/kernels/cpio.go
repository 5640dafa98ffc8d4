// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
)

// cpioWriter writes the "newc" archive that the kernel unpacks as its first file
// system (Documentation/driver-api/early-userspace/buffer-format.rst). The first
// error is kept and returned by close.
type cpioWriter struct {
	w    *bufio.Writer
	off  int64
	ino  int
	dirs map[string]bool
	err  error
}

func newCpio(w io.Writer) *cpioWriter {
	return &cpioWriter{w: bufio.NewWriter(w), dirs: map[string]bool{".": true, "/": true}}
}

// add writes a regular file, with the folders above it where they are new. name
// has no leading slash.
func (c *cpioWriter) add(name string, perm os.FileMode, data []byte) {
	c.mkdir(path.Dir(name))
	c.entry(name, 0o100000|uint32(perm.Perm()), data)
}

// addFile is add with the content and the mode of the file here.
func (c *cpioWriter) addFile(name, here string) {
	data, err := os.ReadFile(here)
	if err != nil {
		c.fail(fmt.Errorf("reading a file for the guest: %w", err))
		return
	}
	st, err := os.Stat(here)
	if err != nil {
		c.fail(fmt.Errorf("reading a file for the guest: %w", err))
		return
	}
	c.add(name, st.Mode(), data)
}

func (c *cpioWriter) mkdir(name string) {
	if c.dirs[name] {
		return
	}
	c.mkdir(path.Dir(name))
	c.dirs[name] = true
	c.entry(name, 0o040755, nil)
}

// entry writes one header of thirteen hexadecimal fields, the name and the data,
// each padded to four bytes.
func (c *cpioWriter) entry(name string, mode uint32, data []byte) {
	if int64(len(data)) > 1<<32-1 {
		c.fail(fmt.Errorf("%s has %d bytes, more than the archive can hold", name, len(data)))
		return
	}
	c.ino++
	c.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0))
	c.write([]byte(name + "\x00"))
	c.pad()
	c.write(data)
	c.pad()
}

// close writes the trailer and returns the first error of the archive.
func (c *cpioWriter) close() error {
	c.entry("TRAILER!!!", 0, nil)
	if err := c.w.Flush(); err != nil {
		c.fail(err)
	}
	return c.err
}

func (c *cpioWriter) pad() { c.write(make([]byte, -c.off&3)) }

func (c *cpioWriter) write(b []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(b)
	c.off += int64(n)
	c.fail(err)
}

func (c *cpioWriter) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}
