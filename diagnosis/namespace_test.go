// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

const here, there = 4026531840, 4026532281

// twins is a node with the same port in two network namespaces; change is for that of
// the second.
func twins(change func(p *Port)) *Measured {
	m, second := healthy(), healthy()
	change(&second.Ports[0])
	second.Ports[0].NetNS = there
	m.Ports = append(m.Ports, second.Ports[0])
	return m
}

func overflowed(p *Port) { p.Accept.Overflows = new(uint64(3)) }

func TestFindingNamesItsNamespace(t *testing.T) {
	const where = "network namespace 4026532281"
	r := Build(twins(overflowed))
	if f := r.Findings[0]; f.ID != "accept_overflow" || f.Port != 8000 || f.NetNS != there || !strings.Contains(f.Title, ":8000 in "+where) {
		t.Errorf("the first finding is %+v", f)
	}
	if all := strings.Join(r.Verdict, " "); !strings.Contains(all, ":8000 in "+where) {
		t.Errorf("the verdict is %q", all)
	}
	alone := healthy()
	overflowed(&alone.Ports[0])
	if f := Build(alone).Findings[0]; f.NetNS != here || strings.Contains(f.Title, "namespace") {
		t.Errorf("in the only namespace the finding is %+v", f)
	}
}

// TestOtherPortIsNoNamespace: the sum of the ports beyond the budget has none.
func TestOtherPortIsNoNamespace(t *testing.T) {
	m := healthy()
	overflowed(&m.Ports[0])
	m.Ports = append(m.Ports, Port{Process: "other"})
	if f := Build(m).Findings[0]; strings.Contains(f.Title, "namespace") {
		t.Errorf("the finding is %+v", f)
	}
}

func TestOverflowsOfTwoNamespaces(t *testing.T) {
	m := twins(func(*Port) {})
	for i := range m.Ports {
		m.Ports[i].Accept.Overflows, m.Ports[i].Loss.NodeListenOverflows = nil, new(uint64(7))
	}
	r := Build(m)
	for i, ns := range []uint64{here, there} {
		if f := r.Findings[i]; f.ID != "accept_overflow" || f.NetNS != ns || f.Port != 0 || !strings.Contains(f.Title, fmt.Sprintf("network namespace %d", ns)) {
			t.Errorf("the finding of %d is %+v", ns, f)
		}
	}
}

// TestVerdictOfTwins: a port is not said to be what its twin is.
func TestVerdictOfTwins(t *testing.T) {
	m := twins(func(p *Port) {
		fillTTFT(p, 200, func(i int) split {
			return split{attribution.Reader: around(40*us, i), attribution.Engine: around(50*us, i)}
		})
		p.Gap = nil
	})
	r := Build(m)
	says := func(ns int) (found []string) {
		for _, s := range r.Verdict {
			if strings.Contains(s, fmt.Sprint(ns)) {
				found = append(found, s)
			}
		}
		return found
	}
	if a, b := says(here), says(there); len(a) != 1 || len(b) != 1 {
		t.Errorf("the verdict is %q", r.Verdict)
	}
}

func TestStreamsOfTwins(t *testing.T) {
	m := twins(func(p *Port) { fillGaps(p, 500, quietGap) })
	silence(500, 3*time.Second)(m)
	slow := func(id string, ns uint64) Stream {
		return Stream{ID: id, Port: 8000, NetNS: ns, WorstGap: 3 * time.Second, GapStages: map[string]time.Duration{"engine": 3 * time.Second}}
	}
	m.Streams = []Stream{slow("mine", here), slow("foreign", there)}
	r := Build(m)
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == "engine_stall" })
	if i < 0 {
		t.Fatalf("no stall among %+v", r.Findings)
	}
	if said := strings.Join(r.Findings[i].Evidence, "\n"); r.Findings[i].NetNS != here || !strings.Contains(said, "mine") || strings.Contains(said, "foreign") {
		t.Errorf("the stall of %d rests on:\n%s", r.Findings[i].NetNS, said)
	}
	var text strings.Builder
	if err := WriteText(&text, r, Style{Width: maxWidth}); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.Streams {
		if !slices.ContainsFunc(strings.Split(text.String(), "\n"), func(l string) bool {
			return strings.Contains(l, ":8000 "+s.ID) && strings.Contains(l, fmt.Sprintf("network namespace %d", s.NetNS))
		}) {
			t.Errorf("no line of stream %s names its namespace:\n%s", s.ID, text.String())
		}
	}
	if got := worstOf([]Stream{slow("1", here)}, []Stream{slow("1", there)}); len(got) != 2 {
		t.Errorf("streams of two namespaces became %+v", got)
	}
}

func TestCompareTwins(t *testing.T) {
	d := Compare(twins(overflowed), func() *Measured {
		m := twins(func(*Port) {})
		overflowed(&m.Ports[0])
		return m
	}(), Span{}, Span{})
	if len(d.New) != 1 || len(d.Gone) != 1 || d.New[0].NetNS != here || d.Gone[0].NetNS != there {
		t.Errorf("new: %+v, gone: %+v", d.New, d.Gone)
	}
	if len(d.Ports) != 2 || d.Ports[0].NetNS != here || d.Ports[1].NetNS != there {
		t.Errorf("the ports are %+v", d.Ports)
	}
	var text strings.Builder
	if err := WriteDiffText(&text, d); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []int{here, there} {
		if !strings.Contains(text.String(), fmt.Sprintf("python3 · network namespace %d\n", ns)) {
			t.Errorf("namespace %d is not named:\n%s", ns, text.String())
		}
	}
}
