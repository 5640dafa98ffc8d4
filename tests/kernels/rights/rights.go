// SPDX-License-Identifier: Apache-2.0

//go:build linux

package rights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/results"
)

// The exit codes that a run may end with (docs/exit-codes.md).
var (
	works   = []int{0, 1}
	missing = []int{3}
)

// Case is one way of running the command line, and what it must answer.
type Case struct {
	Name    string
	Drop    []uint // capabilities that root is without
	Nobody  bool   // as an unprivileged user
	Ambient []uint // capabilities that this user has
	HideBTF bool
	Away    bool // watch the port of another network namespace

	Codes []int    // of diagnose
	Says  []string // each in a missing or poorer signal's reason
	Never []string // nowhere in the answer
	// ProbesWork: the probes verb ends with 0, although diagnose does not.
	ProbesWork bool
}

const (
	sayBPF     = "missing right: CAP_BPF"
	sayPerfmon = "missing right: CAP_PERFMON"
	sayPtrace  = "missing right: CAP_SYS_PTRACE"
	sayAdmin   = "missing right: CAP_SYS_ADMIN"
	sayBTF     = "no BTF at /sys/kernel/btf/vmlinux"
	sayRight   = "missing right"
	sayLocked  = "locked down"
)

// All are the cases. CAP_SYS_ADMIN holds CAP_BPF and CAP_PERFMON, so these are
// missed only where it is missing too.
var All = []Case{
	{Name: "root", Codes: works, Never: []string{sayRight}},
	{Name: "root, another network namespace", Away: true, Codes: works, Never: []string{sayRight}},
	{Name: "an unprivileged user", Nobody: true, Codes: missing, Says: []string{"missing right: CAP_BPF, CAP_PERFMON", sayPtrace, "TTFT, gaps and every stage"}, Never: []string{sayLocked, sayBTF}},
	{Name: "BTF hidden", HideBTF: true, Codes: missing, Says: []string{sayBTF, "TTFT, gaps and every stage"}, Never: []string{sayRight, sayLocked}},
	{Name: "without CAP_BPF", Drop: []uint{unix.CAP_BPF}, Codes: works, Never: []string{sayRight}},
	{Name: "without CAP_PERFMON", Drop: []uint{unix.CAP_PERFMON}, Codes: works, Never: []string{sayRight}},
	{Name: "without CAP_NET_ADMIN", Drop: []uint{unix.CAP_NET_ADMIN}, Codes: works, Never: []string{sayRight}},
	{Name: "without CAP_SYS_RESOURCE", Drop: []uint{unix.CAP_SYS_RESOURCE}, Codes: works, Never: []string{sayRight}},
	{Name: "without CAP_SYS_PTRACE", Drop: []uint{unix.CAP_SYS_PTRACE}, Codes: works, Says: []string{sayPtrace, "wake_to_run"}, Never: []string{sayBPF, sayAdmin}},
	{Name: "without CAP_SYS_PTRACE, another network namespace", Drop: []uint{unix.CAP_SYS_PTRACE}, Away: true, Codes: missing, Says: []string{sayPtrace, "network namespace"}, Never: []string{sayBPF, sayAdmin}, ProbesWork: true},
	{Name: "without CAP_SYS_ADMIN", Drop: []uint{unix.CAP_SYS_ADMIN}, Codes: works, Says: []string{sayAdmin, "what each program costs"}, Never: []string{sayBPF, sayPtrace}},
	{Name: "without CAP_SYS_ADMIN, another network namespace", Drop: []uint{unix.CAP_SYS_ADMIN}, Away: true, Codes: missing, Says: []string{sayAdmin, "network namespace"}, Never: []string{sayBPF, sayPtrace}, ProbesWork: true},
	{Name: "without CAP_SYS_ADMIN and CAP_BPF", Drop: []uint{unix.CAP_SYS_ADMIN, unix.CAP_BPF}, Codes: missing, Says: []string{sayBPF}, Never: []string{"CAP_PERFMON,", sayLocked, sayBTF}},
	{Name: "without CAP_SYS_ADMIN and CAP_PERFMON", Drop: []uint{unix.CAP_SYS_ADMIN, unix.CAP_PERFMON}, Codes: missing, Says: []string{sayPerfmon}, Never: []string{sayBPF, sayLocked, sayBTF}},
	{Name: "a user with CAP_BPF and CAP_PERFMON", Nobody: true, Ambient: []uint{unix.CAP_BPF, unix.CAP_PERFMON}, Codes: works, Says: []string{sayPtrace, sayAdmin}, Never: []string{sayBPF, sayPerfmon}},
	{Name: "a user with CAP_BPF", Nobody: true, Ambient: []uint{unix.CAP_BPF}, Codes: missing, Says: []string{sayPerfmon}, Never: []string{sayBPF, sayLocked}},
	{Name: "a user with CAP_PERFMON", Nobody: true, Ambient: []uint{unix.CAP_PERFMON}, Codes: missing, Says: []string{sayBPF}, Never: []string{sayPerfmon, sayLocked}},
}

// Cases runs all cases with the program agent, which other users must be able to
// run; each diagnoses for the window. Where this machine cannot make a case it is
// listed with the reason.
func Cases(ctx context.Context, agent string, window time.Duration) []results.Case {
	out := make([]results.Case, len(All))
	err := Possible()
	var v *victims
	if err == nil {
		v, err = newVictims(ctx)
	}
	if err != nil {
		for i, c := range All {
			out[i] = judge(c.Name, err)
		}
		return out
	}
	defer v.Close()
	var wg sync.WaitGroup
	room := make(chan struct{}, runtime.NumCPU())
	for i, c := range All {
		wg.Go(func() {
			room <- struct{}{}
			out[i] = judge(c.Name, v.try(ctx, agent, c, window))
			<-room
		})
	}
	wg.Wait()
	return out
}

func judge(name string, err error) results.Case {
	r := results.Case{Name: "here/" + name, Unit: "as it should", Goal: 1, Better: results.Higher}
	if errors.Is(err, ErrCannot) {
		r.Note = err.Error()
		return r
	}
	value, pass := 1.0, err == nil
	if err != nil {
		value, r.Note = 0, err.Error()
	}
	r.Value, r.Pass, r.Samples = &value, &pass, 1
	return r
}

// ErrCannot: this machine cannot run the cases.
var ErrCannot = errors.New("cannot take rights away here")

// Possible says why no case can be run, or is nil. The errors wrap ErrCannot.
func Possible() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: not root", ErrCannot)
	}
	return nil
}

// answer is what the two verbs print as JSON, as far as it is judged.
type answer struct {
	Schema   string `json:"schema"`
	Coverage []reason
	Signals  []reason
	Ports    []struct {
		Connections *uint64
		Exchanges   *uint64
	}
}

type reason struct {
	Missing       bool
	Note          string
	BetterRefused []struct{ Why string } `json:"better_refused"`
}

// try runs both verbs and returns everything that is not as it should be.
func (v *victims) try(ctx context.Context, agent string, c Case, window time.Duration) error {
	port := v.port
	if c.Away {
		port = v.away
	}
	var wrong []error
	var a answer
	out, err := c.run(ctx, agent, "diagnose", "--json", "--for", window.String(), "--port", fmt.Sprint(port))
	if err != nil {
		return err
	}
	wrong = append(wrong, out.check("diagnose", c.Codes, &a))
	if a.Schema != "velo-agent.report.v1" {
		wrong = append(wrong, fmt.Errorf("the report's schema is %q", a.Schema))
	}
	wrong = append(wrong, c.reasons("diagnose", out, a.Coverage)...)
	wrong = append(wrong, c.figures(a))

	codes := []int{0}
	if slices.Equal(c.Codes, missing) && !c.ProbesWork {
		codes = missing
	}
	out, err = c.run(ctx, agent, "probes", "--json")
	if err != nil {
		return errors.Join(append(wrong, err)...)
	}
	a = answer{}
	wrong = append(wrong, out.check("probes", codes, &a))
	if len(a.Signals) == 0 {
		wrong = append(wrong, errors.New("probes names no signal"))
	}
	if err := errors.Join(wrong...); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// figures must be there if stages can be told, and else be left out: absent is not
// zero. The other namespace's port is never used.
func (c *Case) figures(a answer) error {
	if len(a.Ports) != 1 {
		return fmt.Errorf("the report has %d ports", len(a.Ports))
	}
	p := a.Ports[0]
	switch known := slices.Equal(c.Codes, works); {
	case known && (p.Exchanges == nil || p.Connections == nil):
		return errors.New("the exchanges are left out")
	case known && !c.Away && *p.Exchanges == 0:
		return errors.New("no exchange was seen")
	case !known && (p.Exchanges != nil || p.Connections != nil):
		return errors.New("there are figures that nothing measured")
	}
	return nil
}

// reasons checks what the coverage says is lost, and why.
func (c *Case) reasons(verb string, out output, coverage []reason) []error {
	var said strings.Builder
	for _, r := range coverage {
		if r.Missing && r.Note == "" && len(r.BetterRefused) == 0 {
			said.WriteString("a signal is missing without a reason\n")
		}
		said.WriteString(r.Note + "\n")
		for _, b := range r.BetterRefused {
			said.WriteString(b.Why + "\n")
		}
	}
	var wrong []error
	for _, s := range c.Says {
		if !strings.Contains(said.String(), s) {
			wrong = append(wrong, fmt.Errorf("%s does not say %q", verb, s))
		}
	}
	for _, s := range c.Never {
		if strings.Contains(out.stdout+out.stderr, s) {
			wrong = append(wrong, fmt.Errorf("%s says %q", verb, s))
		}
	}
	return wrong
}

// output is how a run of the command line ended.
type output struct {
	stdout, stderr string
	code           int
}

// check decodes the answer and looks at the way the run ended.
func (o *output) check(verb string, codes []int, a *answer) error {
	var wrong []error
	if !slices.Contains(codes, o.code) {
		wrong = append(wrong, fmt.Errorf("%s ended with %d, not one of %v: %s", verb, o.code, codes, strings.TrimSpace(o.stderr)))
	}
	for _, s := range []string{"panic:", "goroutine ", "fatal error:"} {
		if strings.Contains(o.stderr, s) {
			wrong = append(wrong, fmt.Errorf("%s crashed: %s", verb, o.stderr))
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), a); err != nil {
		wrong = append(wrong, fmt.Errorf("%s printed no JSON: %w", verb, err))
	}
	if o.code == 3 && !strings.Contains(o.stderr, "velo-agent: ") {
		wrong = append(wrong, fmt.Errorf("%s ended with 3 and said nothing", verb))
	}
	return errors.Join(wrong...)
}
