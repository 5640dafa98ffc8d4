// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// Thresholds that several mechanisms share.
const (
	// With fewer exchanges one slow client moves a share by more than 5 points and
	// the p99 is simply the slowest one.
	minExchanges = 20
	// A gap is one token: 50 of them are one or two short answers.
	minGaps = 50
	// Below this many samples a p99 is one sample.
	minTail = 100

	// A tenth of the time: less is within what two runs of one server differ by.
	hostShare = 0.10
	// Half of the time: the host is then the first thing to repair.
	hostShareCritical = 0.50

	// Nobody who waits for a first token notices less than a millisecond, and the
	// gaps of a fast engine are some 5 ms.
	minTTFTCost = time.Millisecond
	minGapCost  = 200 * time.Microsecond
	// A twentieth of a second of each TTFT is felt; half of that for each token
	// halves the speed of an engine of 40 tokens a second.
	criticalTTFTCost = 50 * time.Millisecond
	criticalGapCost  = 25 * time.Millisecond

	// A stage makes the tail where its own p99 is at least half of the whole's and
	// longer than a scheduler's slice or a token's time.
	tailPart  = 0.5
	tailFloor = 10 * time.Millisecond

	// Evidence is to be read, not searched.
	maxRolesShown = 3
)

// rule is one mechanism: when it is raised, in words, and the functions that
// decide. Either function may be nil.
type rule struct {
	id   string
	docs string // page of this repository
	when string // the thresholds, for docs/findings.md
	port func(*view) *Finding
	node func(*Measured) []Finding
}

// rules in the order in which they are tried. Those that speak of the engine come
// after those that speak of the host, because they ask what was raised before.
var rules = []rule{
	fdExhausted, acceptOverflow, acceptQueueWait,
	cpuThrottled, cpuStarvation, runtimeHandoff, slowReader,
	sendQueue, retransmits, resets,
	engineStall, engineDominates,
	unexplainedHigh, eventsLost, coveragePoor,
}

// view is one port as the rules see it.
type view struct {
	m         *Measured
	p         *Port
	ttft, gap partition
	raised    map[string]bool // ids of the findings of this port so far
}

func newView(m *Measured, p *Port) *view {
	return &view{m: m, p: p, ttft: ttftPartition(p), gap: gapPartition(p), raised: map[string]bool{}}
}

// name is the port as sentences call it.
func (v *view) name() string {
	name := ":" + strconv.Itoa(int(v.p.Port))
	if ns := namespaceIn(v.m.namespaces(), v.p.NetNS); ns != "" {
		name += " in " + ns
	}
	return name
}

func findings(m *Measured, views []*view) []Finding {
	all := []Finding{}
	for _, r := range rules {
		var found []Finding
		for _, v := range views {
			if r.port == nil {
				continue
			}
			if f := r.port(v); f != nil {
				f.Port, f.NetNS = v.p.Port, v.p.NetNS
				v.raised[r.id] = true
				found = append(found, *f)
			}
		}
		if r.node != nil {
			found = append(found, r.node(m)...)
		}
		for _, f := range found {
			f.ID, f.Docs = r.id, r.docs
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(shareOf(b), shareOf(a)))
	})
	return all
}

func rank(severity string) int { return slices.Index([]string{Critical, Warning, Notice}, severity) }

func shareOf(f Finding) float64 {
	if f.Share == nil {
		return 0
	}
	return *f.Share
}

// heavyWhen is burdenOf in words, stageWhen refers to it.
var heavyWhen = fmt.Sprintf("takes at least %s of the TTFT and %s of each (%d exchanges or more), or %s of the gap time and %s of each (%d gaps or more); "+
	"or when its p99 is at least %s and at least half of the whole's p99 (%d samples or more). It is critical from %s and %s of each TTFT, or %s of each gap",
	percent(hostShare), span(minTTFTCost), minExchanges, percent(hostShare), span(minGapCost), minGaps,
	span(tailFloor), minTail, percent(hostShareCritical), span(criticalTTFTCost), span(criticalGapCost))

func stageWhen(s attribution.Stage) string { return fmt.Sprintf("`%s` is heavy", s) }

// burden is what a stage of the host takes from TTFT or from the gaps.
type burden struct {
	severity string
	share    float64
	stage    attribution.Stage
	sentence string // goes after the name of what takes it
}

// burdenOf judges stage s. It is nil where nothing was measured, where there are
// too few samples, or where the stage takes too little to matter. Of TTFT and gaps
// it tells the more severe, TTFT first.
func (v *view) burdenOf(s attribution.Stage) *burden {
	ttft := v.ttft.burdenOf(s, minExchanges, minTTFTCost, criticalTTFTCost)
	gap := v.gap.burdenOf(s, minGaps, minGapCost, criticalGapCost)
	if ttft == nil || gap != nil && rank(gap.severity) < rank(ttft.severity) {
		return gap
	}
	return ttft
}

func (p *partition) burdenOf(s attribution.Stage, minSamples uint64, cost, critical time.Duration) *burden {
	if !p.known || p.stage[s] == nil || p.whole.Count() < minSamples {
		return nil
	}
	b := &burden{severity: Warning, share: p.share[s], stage: s}
	mean := p.mean(s)
	if p.share[s] >= hostShare && mean >= cost {
		if p.share[s] >= hostShareCritical && mean >= critical {
			b.severity = Critical
		}
		b.sentence = fmt.Sprintf("takes %s of the %s (mean %s of %s)",
			percent(p.share[s]), p.what, span(mean), span(p.wholeMean()))
		return b
	}
	p99, ok := p.quantile(s, 0.99)
	whole := quantile(p.whole, 0.99)
	if ok && p.stage[s].Count() >= minTail && p99 >= tailFloor && float64(p99) >= tailPart*float64(whole) {
		b.sentence = fmt.Sprintf("makes the tail of the %s (its p99 is %s, of the whole %s)", p.what, span(p99), span(whole))
		return b
	}
	return nil
}

// finding starts a finding about a stage: who takes it, and the stage's figures.
func (v *view) finding(who string, b *burden) *Finding {
	return &Finding{
		Severity: b.severity,
		Title:    who + " of " + v.name() + " " + b.sentence,
		Share:    new(b.share),
		Evidence: v.figures(b.stage),
	}
}

// figures tells a stage's part of TTFT and of the gaps.
func (v *view) figures(s attribution.Stage) []string {
	var lines []string
	for _, p := range []*partition{&v.ttft, &v.gap} {
		if !p.known || p.stage[s] == nil || p.sum[s] == 0 {
			continue
		}
		line := fmt.Sprintf("%s is %s of the %s: mean %s", s, percent(p.share[s]), p.what, span(p.mean(s)))
		if p50, ok := p.quantile(s, 0.5); ok {
			p99, _ := p.quantile(s, 0.99)
			line += fmt.Sprintf(", p50 %s, p99 %s", span(p50), span(p99))
		}
		lines = append(lines, line+" ("+count(p.whole.Count())+" samples)")
	}
	return lines
}

// waits tells how long the threads wait for a CPU, the worst roles first.
func (v *view) waits() []string {
	roles := slices.Clone(v.p.Sched)
	slices.SortStableFunc(roles, func(a, b Role) int { return cmp.Compare(b.waited(), a.waited()) })
	var lines []string
	for _, r := range roles[:min(len(roles), maxRolesShown)] {
		line := ""
		if r.Wait != nil && r.Wait.Count() > 0 {
			line = fmt.Sprintf("from wake-up to running p50 %s, p99 %s over %s",
				span(quantile(r.Wait, 0.5)), span(quantile(r.Wait, 0.99)), counted(r.Wait.Count(), "wake-up", "wake-ups"))
		}
		if r.RunDelay != nil {
			if line != "" {
				line += "; "
			}
			line += "runnable but not running for " + span(*r.RunDelay)
			if r.OnCPU != nil {
				line += ", on CPU for " + span(*r.OnCPU)
			}
		}
		if line != "" {
			lines = append(lines, r.title()+": "+line)
		}
	}
	return lines
}

// waited is the whole time that the role's threads waited for a CPU, as far as it
// is known.
func (r *Role) waited() time.Duration {
	var d time.Duration
	if r.RunDelay != nil {
		d = *r.RunDelay
	}
	if r.Wait != nil {
		d = max(d, r.Wait.Sum())
	}
	return d
}

func (r *Role) title() string {
	return fmt.Sprintf("role \"%s\" (%s)", r.Name, counted(uint64(max(r.Threads, 0)), "thread", "threads"))
}

// positive says that a count was taken and is not 0.
func positive(n *uint64) bool { return n != nil && *n > 0 }

// signal finds how a signal was obtained; nil where Coverage does not speak of it.
func (m *Measured) signal(name string) *Coverage {
	for i := range m.Coverage {
		if m.Coverage[i].Signal == name {
			return &m.Coverage[i]
		}
	}
	return nil
}
