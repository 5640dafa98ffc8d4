// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// Hook is a place where a program is attached.
type Hook struct {
	Name   string // of the tracepoint or the kernel's function
	Attach ebpf.AttachType
}

// ownLink is a link that this process holds, iterators aside.
type ownLink struct {
	fd      int
	id      link.ID
	program ebpf.ProgramID
	hook    Hook
}

// ownLinks reads what the kernel says of this process's link descriptors: so the
// hooks are those that the agent has really attached to.
func ownLinks() ([]ownLink, error) {
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		return nil, fmt.Errorf("listing one's own descriptors: %w", err)
	}
	var out []ownLink
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // closed meanwhile: the folder's own, for one
		}
		l, ok, err := parseLink(string(text))
		if err != nil {
			return nil, fmt.Errorf("reading what %s is attached to: %w", name, err)
		}
		if !ok {
			continue
		}
		if l.fd, err = strconv.Atoi(filepath.Base(name)); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// parseLink reads one fdinfo; ok is false for what is no link to a hook.
func parseLink(text string) (l ownLink, ok bool, err error) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	number := func(key string) uint32 {
		n, e := strconv.ParseUint(fields[key], 10, 32)
		err = errors.Join(err, e)
		return uint32(n)
	}
	switch fields["link_type"] {
	case "raw_tracepoint":
		l.hook = Hook{fields["tp_name"], ebpf.AttachTraceRawTp}
	case "tracing":
		l.hook.Attach = ebpf.AttachType(number("attach_type"))
		if l.hook.Name, err = functionName(btf.TypeID(number("target_btf_id"))); err != nil {
			return l, false, err
		}
	default:
		return l, false, nil
	}
	l.id, l.program = link.ID(number("link_id")), ebpf.ProgramID(number("prog_id"))
	return l, true, err
}

func functionName(id btf.TypeID) (string, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return "", fmt.Errorf("reading the kernel's BTF: %w", err)
	}
	t, err := spec.TypeByID(id)
	if err != nil {
		return "", fmt.Errorf("looking up BTF type %d: %w", id, err)
	}
	return t.TypeName(), nil
}

// ownHooks lists what this process is attached to, sorted by name. A hook with two
// programs is there twice.
func ownHooks() ([]Hook, error) {
	links, err := ownLinks()
	var hooks []Hook
	for _, l := range links {
		hooks = append(hooks, l.hook)
	}
	slices.SortFunc(hooks, func(a, b Hook) int { return cmp.Compare(a.Name, b.Name) })
	return hooks, err
}

// ProgramCost is what an attached program has cost while the kernel kept its run
// statistics.
type ProgramCost struct {
	Program, Hook string
	Runs          uint64
	Time          time.Duration
}

// ownCosts reads the statistics of what this process has attached.
func ownCosts() ([]ProgramCost, error) {
	links, err := ownLinks()
	if err != nil {
		return nil, err
	}
	var out []ProgramCost
	for _, l := range links {
		c, err := costOf(l)
		if err != nil {
			return nil, fmt.Errorf("reading the statistics of the program at %s: %w", l.hook.Name, err)
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b ProgramCost) int { return cmp.Compare(a.Hook, b.Hook) })
	return out, nil
}

func costOf(l ownLink) (c ProgramCost, err error) {
	p, err := ebpf.NewProgramFromID(l.program)
	if err != nil {
		return c, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return c, err
	}
	s, err := p.Stats()
	if err != nil {
		return c, err
	}
	return ProgramCost{info.Name, l.hook.Name, s.RunCount, s.Runtime}, nil
}

// otherLinks counts the tracing links that other processes hold.
func otherLinks() (n int, err error) {
	own, err := ownLinks()
	if err != nil {
		return 0, err
	}
	for range 200 {
		// EAGAIN: somebody is just making a link.
		if n, err = countLinks(own); !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return n, err
}

func countLinks(own []ownLink) (n int, err error) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if slices.ContainsFunc(own, func(l ownLink) bool { return l.id == it.ID }) {
			continue
		}
		info, err := it.Link.Info()
		if err != nil {
			continue // gone meanwhile
		}
		switch info.Type {
		case link.RawTracepointType, link.TracingType, link.KprobeMultiType, link.PerfEventType:
			n++
		}
	}
	if err := it.Err(); err != nil {
		return 0, fmt.Errorf("listing the node's BPF links: %w", err)
	}
	return n, nil
}

// attachEmpty attaches a program of two instructions to each hook. What it costs
// is the kernel's own price of a program there.
func attachEmpty(hooks []Hook) (io.Closer, error) {
	var all ladder.Closers
	for _, hook := range hooks {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "empty", Type: ebpf.Tracing, AttachType: hook.Attach, AttachTo: hook.Name,
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
			License:      "GPL",
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("loading an empty program for %s: %w", hook.Name, ladder.Explain(err)), all.Close())
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		err = errors.Join(err, p.Close()) // the link keeps it
		if err != nil {
			return nil, errors.Join(fmt.Errorf("attaching an empty program to %s: %w", hook.Name, ladder.Explain(err)), all.Close())
		}
		all = append(all, l)
	}
	return all, nil
}
