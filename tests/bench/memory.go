// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Cgroup is a memory cgroup of our own. The kernel charges BPF maps and socket
// storage to it as well as the process's pages, so it counts all that the agent
// takes without believing anyone's arithmetic.
type Cgroup struct{ dir, usage, reclaim, amount string }

// NewCgroup makes one and puts a child into it; v2 or v1, whichever has the
// memory controller.
func NewCgroup(pid int) (*Cgroup, error) {
	var errs []error
	name := fmt.Sprintf("velo-bench-%d", pid)
	for _, g := range []*Cgroup{
		{filepath.Join("/sys/fs/cgroup", name), "memory.current", "memory.reclaim", "1G"},
		{filepath.Join("/sys/fs/cgroup/memory", name), "memory.usage_in_bytes", "memory.force_empty", "0"},
	} {
		err := g.enter(pid)
		if err == nil {
			return g, nil
		}
		errs = append(errs, err, g.Remove())
	}
	return nil, fmt.Errorf("making a memory cgroup: %w", errors.Join(errs...))
}

func (g *Cgroup) enter(pid int) error {
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return err
	}
	if _, err := g.Bytes(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// Bytes returns what is charged to it now, without what the kernel only caches (the
// names under /proc that were looked up). What other processes had paid for
// before, such as the program's text, is not in it.
func (g *Cgroup) Bytes() (uint64, error) {
	if f, err := os.OpenFile(filepath.Join(g.dir, g.reclaim), os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString(g.amount) // an error says that less could be reclaimed than was asked for
		f.Close()
	}
	b, err := os.ReadFile(filepath.Join(g.dir, g.usage))
	if err != nil {
		return 0, fmt.Errorf("reading the cgroup's memory: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// Remove removes it once its processes have ended.
func (g *Cgroup) Remove() error {
	if err := os.Remove(g.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the cgroup: %w", err)
	}
	return nil
}
