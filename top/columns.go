// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// row is one port of the table.
type row struct {
	*diagnosis.PortReport
	seconds  float64 // of the window
	findings []diagnosis.Finding
	stage    string // the one that takes most of TTFT, or of the gaps where that is not known
	share    float64
}

// id tells a port from those of other network namespaces.
type id struct {
	port  uint16
	netns uint64
}

func (r *row) id() id { return id{r.Port, r.NetNS} }

// name is the engine and the process that listens.
func (r *row) name() string {
	switch {
	case r.Engine == "" || r.Engine == r.Process:
		return cmp.Or(r.Process, absent)
	case r.Process == "":
		return r.Engine
	}
	return r.Engine + " " + r.Process
}

func rowsOf(r *diagnosis.Report) []row {
	var rows []row
	for i := range r.Ports {
		p := row{PortReport: &r.Ports[i], seconds: r.WindowS}
		for _, f := range r.Findings {
			if (id{f.Port, f.NetNS}) == p.id() {
				p.findings = append(p.findings, f)
			}
		}
		p.stage, p.share = mainStage(p.PortReport)
		rows = append(rows, p)
	}
	return rows
}

func mainStage(p *diagnosis.PortReport) (stage string, share float64) {
	for _, pick := range []func(diagnosis.StageReport) *diagnosis.StageShare{
		func(s diagnosis.StageReport) *diagnosis.StageShare { return s.TTFT },
		func(s diagnosis.StageReport) *diagnosis.StageShare { return s.Gap },
	} {
		for s := range attribution.NumStages {
			if sh := pick(p.Stages[s.String()]); sh != nil && sh.Share > share {
				stage, share = s.String(), sh.Share
			}
		}
		if stage != "" {
			break
		}
	}
	return stage, share
}

// sortKey is what rows are compared by. Unknown ones come last, whichever way.
type sortKey struct {
	number float64
	word   string
	known  bool
}

func num(v float64) sortKey { return sortKey{number: v, known: true} }

// column is one of the table.
type column struct {
	group, head  string // the two lines above the figures
	name         string // as the title calls it
	narrow, wide int    // columns it takes below and from wideFrom on; 0: the rest
	right        bool   // aligned to the right
	ascending    bool   // as it is first sorted
	key          func(*row) sortKey
	text         func(r *row, width int) string
}

// wideFrom is the width from which figures have a third digit.
const wideFrom = 110

var columns = []column{
	{
		head: "port", name: "port", narrow: 5, wide: 5, right: true, ascending: true,
		key:  func(r *row) sortKey { return num(float64(r.Port)) },
		text: func(r *row, _ int) string { return strconv.Itoa(int(r.Port)) },
	},
	{
		head: "process", name: "process", ascending: true,
		key:  func(r *row) sortKey { return sortKey{word: r.name(), known: r.name() != absent} },
		text: func(r *row, _ int) string { return r.name() },
	},
	{
		head: "conn", name: "connections", narrow: 4, wide: 5, right: true,
		key: func(r *row) sortKey { return optional(r.Connections) },
		text: func(r *row, _ int) string {
			return shown(optional(r.Connections), func(v float64) string { return number(uint64(v)) })
		},
	},
	{
		head: "ex/s", name: "exchanges a second", narrow: 4, wide: 5, right: true,
		key:  rateOf,
		text: func(r *row, _ int) string { return shown(rateOf(r), perSecond) },
	},
	quantile("TTFT", "p50", func(r *row) *diagnosis.Distribution { return r.TTFT }, func(d *diagnosis.Distribution) float64 { return d.P50 }),
	quantile("TTFT", "p99", func(r *row) *diagnosis.Distribution { return r.TTFT }, func(d *diagnosis.Distribution) float64 { return d.P99 }),
	quantile("gap", "p50", func(r *row) *diagnosis.Distribution { return r.Gap }, func(d *diagnosis.Distribution) float64 { return d.P50 }),
	quantile("gap", "p99", func(r *row) *diagnosis.Distribution { return r.Gap }, func(d *diagnosis.Distribution) float64 { return d.P99 }),
	{
		head: "main stage", name: "main stage", narrow: 15, wide: 20,
		key: stageKey,
		text: func(r *row, width int) string {
			return shown(stageKey(r), func(float64) string {
				part := " " + share(r.share)
				return strings.TrimRight(cell(r.stage, width-len(part), false), " ") + part
			})
		},
	},
	{
		head: "accept", name: "accept queue", narrow: 9, wide: 9, right: true,
		key: fill,
		text: func(r *row, _ int) string {
			switch {
			case r.Accept == nil:
				return absent
			case r.Accept.Limit == 0:
				return number(r.Accept.Depth) + "/" + absent
			}
			return number(r.Accept.Depth) + "/" + number(r.Accept.Limit)
		},
	},
	{
		head: "!", name: "findings", narrow: 2, wide: 2, right: true,
		key:  findingsKey,
		text: func(r *row, _ int) string { return strconv.Itoa(min(len(r.findings), 99)) },
	},
}

func quantile(of, q string, dist func(*row) *diagnosis.Distribution, pick func(*diagnosis.Distribution) float64) column {
	c := column{
		head: q, name: of + " " + q, narrow: 5, wide: 6, right: true,
		key: func(r *row) sortKey {
			if d := dist(r); d != nil {
				return num(pick(d))
			}
			return sortKey{}
		},
	}
	if q == "p50" {
		c.group = of
	}
	c.text = func(r *row, width int) string {
		return shown(c.key(r), func(v float64) string { return span(v, width-len(".ms")) })
	}
	return c
}

func shown(k sortKey, text func(float64) string) string {
	if !k.known {
		return absent
	}
	return text(k.number)
}

func optional(n *uint64) sortKey {
	if n == nil {
		return sortKey{}
	}
	return num(float64(*n))
}

func rateOf(r *row) sortKey {
	if r.Exchanges == nil || r.seconds <= 0 {
		return sortKey{}
	}
	return num(float64(*r.Exchanges) / r.seconds)
}

// stageKey brings together the ports that are slow for the same reason, the host's
// stages before the engine, the largest share first.
func stageKey(r *row) sortKey {
	for s := range attribution.NumStages {
		if s.String() == r.stage {
			return num(float64(attribution.NumStages-s) + r.share/2)
		}
	}
	return sortKey{}
}

// fill is the part of the accept queue that is in use.
func fill(r *row) sortKey {
	if r.Accept == nil || r.Accept.Limit == 0 {
		return sortKey{}
	}
	return num(float64(r.Accept.Depth) / float64(r.Accept.Limit))
}

// findingsKey puts one that is worse before many that are not.
func findingsKey(r *row) sortKey {
	var v float64
	for _, f := range r.findings {
		v += map[string]float64{diagnosis.Critical: 1e6, diagnosis.Warning: 1e3}[f.Severity]
		v++
	}
	return num(v)
}

// order sorts rows by a column; equal ones by port.
func order(rows []row, c *column, reversed bool) {
	slices.SortStableFunc(rows, func(x, y row) int {
		a, b := c.key(&x), c.key(&y)
		if a.known != b.known {
			if a.known {
				return -1
			}
			return 1
		}
		way := cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.word, b.word))
		if c.ascending == reversed {
			way = -way
		}
		return cmp.Or(way, cmp.Compare(x.Port, y.Port), cmp.Compare(x.NetNS, y.NetNS))
	})
}

// describeOrder is the title's "by TTFT p99, highest first".
func describeOrder(c *column, reversed bool) string {
	first := "highest"
	if c.ascending != reversed {
		first = "lowest"
	}
	return fmt.Sprintf("by %s, %s first", c.name, first)
}
