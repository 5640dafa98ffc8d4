// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
)

// Engine is a serving engine: a process that was recognised and its family.
type Engine struct {
	Name    string // EngineVLLM, ...
	Model   string // what it serves, see [ModelOf]; empty where no command line says
	Main    int    // pid of the process that the others descend from
	PIDs    []int  // of Members
	Members []Member
	Orphan  bool // Main is a part whose parent has gone: it may hold GPU memory and ports
}

// Member is one process of an engine.
type Member struct {
	PID     int
	Role    string // "api", "engine", "worker", ...; "child" where only its parent was recognised
	Matched string // what it was recognised by; empty for a child
}

// Engines finds the serving engines among procs, by main pid. A recognised
// process and all that descend from it are one engine, named after the topmost
// (so the EngineCore below a Dynamo worker is Dynamo's). Python processes that
// nothing else tells apart are searched for an embedded llama.cpp in their
// mapped files, which needs CAP_SYS_PTRACE for those of other users: an
// [Incomplete] error, with a valid list, counts those that could not be.
func (h Host) Engines(procs []Process) ([]Engine, error) {
	var s skips
	byPID := make(map[int]Process, len(procs))
	matched := map[int]Member{}
	names := map[int]matcher{}
	for _, p := range procs {
		byPID[p.PID] = p
		m, what, err := h.match(p)
		s.add(err)
		if m != nil {
			matched[p.PID] = Member{PID: p.PID, Role: m.role, Matched: what}
			names[p.PID] = *m
		}
	}
	engines := map[int]*Engine{}
	for _, p := range procs {
		top := topmost(p, byPID, matched)
		if top == 0 {
			continue
		}
		e := engines[top]
		if e == nil {
			e = &Engine{Name: names[top].engine, Main: top, Orphan: names[top].part}
			engines[top] = e
		}
		m, ok := matched[p.PID]
		if !ok {
			m = Member{PID: p.PID, Role: "child"}
		}
		if e.Model == "" || p.PID == top {
			e.Model = cmp.Or(ModelOf(p.Args), e.Model)
		}
		e.PIDs = append(e.PIDs, p.PID)
		e.Members = append(e.Members, m)
	}
	out := make([]Engine, 0, len(engines))
	for _, e := range engines {
		sort.Ints(e.PIDs)
		sort.Slice(e.Members, func(i, j int) bool { return e.Members[i].PID < e.Members[j].PID })
		out = append(out, *e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Main < out[j].Main })
	return out, s.err("recognising engines")
}

// topmost returns the highest recognised pid among p and its ancestors, or 0.
func topmost(p Process, byPID map[int]Process, matched map[int]Member) int {
	top := 0
	for i := 0; i < 64; i++ { // a list read while pids are reused might have a loop
		if _, ok := matched[p.PID]; ok {
			top = p.PID
		}
		parent, ok := byPID[p.PPID]
		if !ok || p.PPID == p.PID {
			break
		}
		p = parent
	}
	return top
}

// match returns the first matcher that fits p and what of p it fits.
func (h Host) match(p Process) (*matcher, string, error) {
	if p.State == 'Z' {
		return nil, "", nil
	}
	c := commandOf(p)
	var mapped []string
	for i := range matchers {
		m := &matchers[i]
		if m.mapped != "" {
			if c.python {
				mapped = append(mapped, m.mapped)
			}
			continue
		}
		if what := m.fits(p, c); what != "" {
			return m, what, nil
		}
	}
	if mapped == nil {
		return nil, "", nil
	}
	found, file, err := h.mapsOneOf(p.PID, mapped)
	if found == "" {
		return nil, "", err
	}
	i := slices.IndexFunc(matchers, func(m matcher) bool { return m.mapped == found })
	return &matchers[i], "maps " + file, nil
}

// fits returns what of p fits, or "".
func (m *matcher) fits(p Process, c command) string {
	if m.sub != nil && !slices.Contains(m.sub, c.sub) {
		return ""
	}
	sub := ""
	if m.sub != nil {
		sub = " " + c.sub
	}
	switch {
	case m.title != "":
		if len(p.Args) > 0 && strings.HasPrefix(p.Args[0], m.title) {
			return p.Args[0]
		}
		if strings.HasPrefix(p.Comm, m.title) {
			return p.Comm
		}
	case m.program != "" && slices.ContainsFunc(c.programs, func(s string) bool { return like(m.program, s) }):
		return strings.TrimSuffix(m.program, "*") + sub
	case m.module != "" && like(m.module, c.module):
		return "python -m " + c.module + sub
	case m.script != "" && (c.script == m.script || strings.HasSuffix(c.script, "/"+m.script)):
		return c.script
	}
	return ""
}

// like compares with a pattern whose final * takes any ending.
func like(pattern, s string) bool {
	if p, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(s, p)
	}
	return s == pattern
}

// command is what a process runs, seen through an interpreter.
type command struct {
	programs []string // base names: of argv[0], the executable and the script
	python   bool
	module   string // of python -m
	script   string // its path
	sub      string // the first argument after the above that is no option
}

// commandOf takes a command line apart.
func commandOf(p Process) command {
	var c command
	exe := path.Base(strings.TrimSuffix(p.Exe, " (deleted)"))
	rest := p.Args
	name := p.Comm
	if len(p.Args) > 0 {
		name, rest = path.Base(p.Args[0]), p.Args[1:]
	}
	c.programs = append(c.programs, name)
	if p.Exe != "" && exe != name {
		c.programs = append(c.programs, exe)
	}
	c.python = isPython(name) || isPython(exe)
	if c.python {
		rest = c.readPython(rest)
	}
	for _, a := range rest {
		if !strings.HasPrefix(a, "-") {
			c.sub = a
			break
		}
	}
	return c
}

func isPython(base string) bool {
	return strings.HasPrefix(base, "python") || strings.HasPrefix(base, "pypy")
}

// readPython steps over the interpreter's own options to the module or script,
// and returns what follows. Letters may be joined (-um module).
func (c *command) readPython(args []string) []string {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "" || a == "-":
			return nil
		case a[0] != '-':
			c.script = a
			c.programs = append(c.programs, path.Base(a))
			return args[i+1:]
		case strings.HasPrefix(a, "--"): // --check-hash-based-pycs has a value
			if a == "--check-hash-based-pycs" {
				i++
			}
			continue
		}
		at := strings.IndexAny(a, "mcWX")
		if at < 0 {
			continue
		}
		value, next := a[at+1:], i+1
		if value == "" && next < len(args) {
			value, next = args[next], next+1
		}
		switch a[at] {
		case 'm':
			c.module = value
			return args[min(next, len(args)):]
		case 'c':
			return nil
		}
		i = next - 1
	}
	return nil
}

// maxMaps bounds how much of /proc/PID/maps is searched, in bytes.
const maxMaps = 4 << 20

// mapsOneOf looks for a mapped file whose path holds one of parts.
func (h Host) mapsOneOf(pid int, parts []string) (part, file string, err error) {
	f, err := os.Open(h.pidPath(pid, "maps"))
	if err != nil {
		return "", "", fmt.Errorf("looking for an embedded engine: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 0, 16<<10), 64<<10)
	for n := 0; sc.Scan() && n < maxMaps; n += len(sc.Bytes()) {
		i := bytes.IndexByte(sc.Bytes(), '/')
		if i < 0 {
			continue
		}
		for _, p := range parts {
			if bytes.Contains(sc.Bytes()[i:], []byte(p)) {
				return p, clean(string(sc.Bytes()[i:])), nil
			}
		}
	}
	if err := sc.Err(); err != nil {
		return "", "", fmt.Errorf("looking for an embedded engine in the maps of process %d: %w", pid, err)
	}
	return "", "", nil
}
