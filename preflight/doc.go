// SPDX-License-Identifier: Apache-2.0

// Package preflight owns the facts about a host: its processes and the serving
// engines among them, their listening sockets in every network namespace, their
// cgroups, limits, scheduling times and network counters. It needs no BPF and
// no root: what a right is missing for is left out, and the error says so
// (see [Incomplete]).
package preflight

import (
	"path/filepath"
	"strconv"
)

// Host reads the facts of one host. The zero value reads /proc.
type Host struct {
	// Root is where procfs is mounted; empty means /proc. Tests give a tree of
	// plain files, a container the mount of its host's /proc.
	Root string
}

// root returns the mount point of procfs.
func (h Host) root() string {
	if h.Root == "" {
		return "/proc"
	}
	return h.Root
}

// path joins elem to the root.
func (h Host) path(elem ...string) string {
	return filepath.Join(append([]string{h.root()}, elem...)...)
}

// pidPath joins elem to the folder of a process.
func (h Host) pidPath(pid int, elem ...string) string {
	return h.path(append([]string{strconv.Itoa(pid)}, elem...)...)
}
