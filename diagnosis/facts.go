// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// The sentences of this file are the same in text and in Markdown.

func headline(r *Report) string {
	parts := []string{"velo-agent " + cmp.Or(r.Node.AgentVersion, "(version not known)")}
	if r.Node.Hostname != "" {
		parts = append(parts, r.Node.Hostname)
	}
	if r.Node.Kernel != "" {
		parts = append(parts, "Linux "+r.Node.Kernel)
	}
	return strings.Join(append(parts, "window "+seconds(r.WindowS)), " · ")
}

func portName(p *PortReport) string {
	name := fmt.Sprintf(":%d", p.Port)
	if p.Engine != "" {
		name += " " + p.Engine
	}
	if p.Process != "" && p.Process != p.Engine {
		name += " (" + p.Process + ")"
	}
	return name
}

// portCounts is what goes after the port's name.
func portCounts(p *PortReport) string {
	var parts []string
	if p.PID != 0 {
		parts = append(parts, fmt.Sprintf("pid %d", p.PID))
	}
	if p.Exchanges != nil {
		parts = append(parts, counted(*p.Exchanges, "exchange", "exchanges")+" (inferred)")
	}
	if p.Connections != nil {
		parts = append(parts, counted(*p.Connections, "connection", "connections"))
	}
	if p.MPTCP {
		parts = append(parts, "MPTCP")
	}
	return strings.Join(parts, " · ")
}

// portWhere is where the port is to be found.
func portWhere(r *Report, p *PortReport) string {
	var parts []string
	if len(p.Addresses) > 0 {
		parts = append(parts, "on "+strings.Join(p.Addresses, ", "))
	}
	if ns := namespaceIn(r.namespaces(), p.NetNS); ns != "" {
		parts = append(parts, ns)
	}
	if p.Cgroup != "" {
		parts = append(parts, "cgroup "+p.Cgroup)
	}
	return strings.Join(parts, " · ")
}

func acceptLine(a *AcceptReport) string {
	if a == nil {
		return "not measured"
	}
	line := count(a.Depth) + " deep"
	if a.Limit > 0 {
		line = fmt.Sprintf("%s of %s deep", count(a.Depth), count(a.Limit))
	}
	if a.HighWater != nil {
		line += fmt.Sprintf(", at most %s", count(*a.HighWater))
	}
	if a.Listeners > 1 {
		line += fmt.Sprintf(" · %d listeners", a.Listeners)
	}
	if a.LimitBy != "" {
		line += " · limit by " + a.LimitBy
	}
	if a.Overflows != nil {
		line += " · " + counted(*a.Overflows, "overflow", "overflows")
	}
	if a.EMFILE != nil && *a.EMFILE > 0 {
		line += " · EMFILE " + counted(*a.EMFILE, "time", "times")
	}
	if a.Wait != nil {
		line += fmt.Sprintf(" · wait p50 %s, p99 %s", seconds(a.Wait.P50), seconds(a.Wait.P99))
		if a.WaitIsInterval {
			line += " (upper bound)"
		}
	}
	return line
}

// lossLine names what is not 0 and what was not measured.
func lossLine(l *LossReport) string {
	if l == nil {
		return "not measured"
	}
	var some, missing []string
	num := func(n *uint64, one, many string) {
		switch {
		case n == nil:
			missing = append(missing, many)
		case *n > 0:
			some = append(some, counted(*n, one, many))
		}
	}
	dur := func(d *float64, what string) {
		switch {
		case d == nil:
			missing = append(missing, what)
		case *d > 0:
			some = append(some, what+" "+seconds(*d))
		}
	}
	num(l.Retransmits, "retransmit", "retransmits")
	num(l.ResetsSent, "reset sent", "resets sent")
	num(l.ResetsReceived, "reset received", "resets received")
	num(l.ZeroWindows, "zero window", "zero windows")
	num(l.NagleWrites, "write held by Nagle", "writes held by Nagle")
	dur(l.RwndLimited, "rwnd-limited")
	dur(l.SndbufLimited, "sndbuf-limited")
	num(l.NodeListenOverflows, "listen overflow of the node", "listen overflows of the node")
	num(l.NodeListenDrops, "listen drop of the node", "listen drops of the node")
	num(l.NodeUDPRcvbufErrors, "UDP receive-buffer error of the node", "UDP receive-buffer errors of the node")
	if len(some) == 0 {
		some = []string{"nothing lost or held back"}
	}
	if len(missing) > 0 {
		some = append(some, "not measured: "+strings.Join(missing, ", "))
	}
	return strings.Join(some, " · ")
}

func schedLine(r *RoleReport, window float64) string {
	var parts []string
	if r.OnCPU != nil {
		part := "on CPU " + seconds(*r.OnCPU)
		if window > 0 && r.Threads > 0 {
			part += fmt.Sprintf(" (%s of a CPU each)", percent(*r.OnCPU/window/float64(r.Threads)))
		}
		parts = append(parts, part)
	}
	if r.Wait != nil {
		parts = append(parts, fmt.Sprintf("wake-up to run p50 %s, p99 %s", seconds(r.Wait.P50), seconds(r.Wait.P99)))
	}
	if r.RunDelay != nil {
		parts = append(parts, "waited "+seconds(*r.RunDelay))
	}
	if r.Preempted != nil && *r.Preempted > 0 {
		parts = append(parts, "pre-empted "+counted(*r.Preempted, "time", "times"))
	}
	if t := r.Throttled; t != nil && t.ThrottledPeriods > 0 {
		parts = append(parts, fmt.Sprintf("throttled in %s of %s", count(t.ThrottledPeriods), counted(t.Periods, "period", "periods")))
	}
	if len(parts) == 0 {
		parts = []string{"not measured"}
	}
	return fmt.Sprintf("%s ×%d: %s", r.Role, r.Threads, strings.Join(parts, " · "))
}

// streamLine names the two largest stages of what was slow in a stream.
func streamLine(r *Report, s *StreamReport) string {
	var parts []string
	if s.TTFT > 0 {
		parts = append(parts, "TTFT "+seconds(s.TTFT)+largestStages(s.Stages))
	}
	if s.WorstGap > 0 {
		parts = append(parts, "worst gap "+seconds(s.WorstGap)+largestStages(s.GapStages))
	}
	if ns := namespaceIn(r.namespaces(), s.NetNS); ns != "" {
		parts = append(parts, ns)
	}
	if s.Port != 0 {
		return fmt.Sprintf(":%d %s: %s", s.Port, s.ID, strings.Join(parts, " · "))
	}
	return s.ID + ": " + strings.Join(parts, " · ")
}

func largestStages(stages map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(stages), func(a, b string) int {
		return cmp.Or(cmp.Compare(stages[b], stages[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(len(names), 2)] {
		if stages[name] > 0 {
			parts = append(parts, name+" "+seconds(stages[name]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func preconditionLine(p *Precondition) string {
	line := p.Key + " is " + strings.ReplaceAll(p.State, "_", " ")
	if p.Have != "" {
		line += ": it is " + p.Have
	}
	if p.Want != "" {
		line += ", wanted " + p.Want
	}
	if p.Origin != "" {
		line += " (set by " + p.Origin + ")"
	}
	return line
}

func agentLine(r *Report) string {
	a := &r.Agent
	line := fmt.Sprintf("%s memory and %s in kernel maps · %s CPU", size(a.RSSBytes), size(a.KernelMapBytes), seconds(a.CPUSeconds))
	if r.WindowS > 0 {
		line += fmt.Sprintf(" (%s of one)", percent(a.CPUSeconds/r.WindowS))
	}
	var lost []string
	for _, place := range slices.Sorted(maps.Keys(a.Lost)) {
		if a.Lost[place] > 0 {
			lost = append(lost, place+" "+count(a.Lost[place]))
		}
	}
	if len(lost) == 0 {
		return line + " · nothing lost"
	}
	return line + " · lost: " + strings.Join(lost, ", ")
}

func programsLine(a *AgentReport) string {
	var parts []string
	for _, p := range a.Programs {
		part := p.Name + " " + counted(p.Runs, "run", "runs")
		if p.NSPerRun > 0 {
			part += fmt.Sprintf(" of %.0f ns", p.NSPerRun)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " · ")
}

// row is one stage in the tables of a port.
type row struct {
	stage   string
	share   *StageShare
	percent string  // those of one table add up to 100
	start   float64 // seconds of the mean that went before
	mean    float64
}

// rows of TTFT or of the gaps in the order in which time passes through the
// stages; those that were not measured are left out.
func rows(p *PortReport, whole *Distribution, pick func(StageReport) *StageShare) []row {
	if whole == nil {
		return nil
	}
	var out []row
	var at float64
	var parts []time.Duration
	for s := range attribution.NumStages {
		sh := pick(p.Stages[s.String()])
		if sh == nil {
			continue
		}
		mean := sh.Sum / float64(whole.Count)
		out = append(out, row{stage: s.String(), share: sh, start: at, mean: mean})
		at += mean
		parts = append(parts, time.Duration(math.Round(max(sh.Share, 0)*shareUnits)))
	}
	if at <= 0 || slices.Max(parts) == 0 {
		return nil
	}
	for i, tenths := range apportion(parts, 1000) {
		out[i].percent = percent(float64(tenths) / 1000)
		if tenths == 0 && out[i].share.Sum > 0 {
			out[i].percent = "<0.1 %"
		}
	}
	return out
}

func ttftRows(p *PortReport) []row {
	return rows(p, p.TTFT, func(s StageReport) *StageShare { return s.TTFT })
}

func gapRows(p *PortReport) []row {
	return rows(p, p.Gap, func(s StageReport) *StageShare { return s.Gap })
}

// total is where the last row ends: the mean of the whole.
func total(rows []row) float64 {
	if len(rows) == 0 {
		return 0
	}
	last := rows[len(rows)-1]
	return last.start + last.mean
}

// optional writes a quantile that may not be known.
func optional(s *float64) string {
	if s == nil {
		return "–"
	}
	return seconds(*s)
}
