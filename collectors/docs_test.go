// SPDX-License-Identifier: Apache-2.0

package collectors_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/collectors/velo"
)

var update = flag.Bool("update", false, "write the reference of docs/metrics.md from the tables")

const (
	metricsPage = "../docs/metrics.md"
	reference   = "<!-- From here on written from the table: go test ./collectors -run TestReference -update -->\n"
)

type group struct {
	title string
	first *collectors.Family
}

// groups are the headings of the reference, each with the first family below it.
var groups = []group{
	{"Exchanges and stages", &collectors.Exchanges},
	{"Accept queue", &collectors.AcceptDepth},
	{"Threads and CPU", &collectors.RunQueueWait},
	{"Network", &collectors.Retransmits},
	{"Findings", &collectors.Findings},
	{"The agent itself", &collectors.SignalRung},
	{"Record and configuration", &collectors.RecordSnapshots},
}

func TestReference(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	byHand, written, ok := strings.Cut(string(page), reference)
	if !ok {
		t.Fatalf("%s has no line %q", metricsPage, reference)
	}
	want := referenceOf(t) + planeReference()
	if *update {
		if err := os.WriteFile(metricsPage, []byte(byHand+reference+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written != want {
		t.Errorf("%s is not what the table gives: go test ./collectors -run TestReference -update", metricsPage)
	}
}

// referenceOf is a table for each group.
func referenceOf(t *testing.T) string {
	var b strings.Builder
	headings := 0
	for _, f := range collectors.Table {
		if i := slices.IndexFunc(groups, func(g group) bool { return g.first == f }); i >= 0 {
			headings++
			fmt.Fprintf(&b, "\n### %s\n\n| metric | type | unit | labels | budget | what | source | read more |\n|---|---|---|---|---|---|---|---|\n", groups[i].title)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %d | %s | %s | [%s](%s) |\n",
			f.Name, f.Type, f.Unit, labelsShown(f), f.Budget, cell(f.Help), cell(f.Source), strings.TrimSuffix(strings.Split(f.Docs, "#")[0], ".md"), local(f.Docs))
	}
	if headings != len(groups) {
		t.Errorf("%d headings of %d have a family", headings, len(groups))
	}
	return b.String()
}

// planeReference is what a node of the response plane registers, and what of velo's it
// does not.
func planeReference() string {
	var b strings.Builder
	b.WriteString("\n### The response plane\n\nOf a node that the daemon hosts (`plane.enabled`), and of any program that gives a node of the library\n" +
		"a registry: [the plane](plane.md). Names, labels and buckets are velo's, so the same dashboard shows Rust nodes;\n" +
		"`velo_agent_plane_` begins what velo does not have.\n\n" +
		"| metric | type | unit | labels | what | what to look at |\n|---|---|---|---|---|---|\n")
	for _, f := range velo.Table() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", f.Name, f.Type, f.Unit, labelsShown(f), cell(f.Help), cell(velo.Look[f.Name]))
	}
	b.WriteString("\nOf velo 0.21's families these are absent:\n\n| metric | why |\n|---|---|\n")
	for _, m := range velo.Absent {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(m.Names, "`, `"), cell(m.Why))
	}
	return b.String()
}

// labelsShown names a port's six labels as one.
func labelsShown(f *collectors.Family) string {
	rest, perPort := f.Labels, collectors.Exchanges.Labels
	var shown []string
	if len(rest) >= len(perPort) && slices.Equal(rest[:len(perPort)], perPort) {
		shown, rest = append(shown, "[a port's](#labels)"), rest[len(perPort):]
	}
	for _, l := range rest {
		shown = append(shown, "`"+l+"`")
	}
	return strings.Join(shown, ", ")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// local is a link from this very page.
func local(page string) string { return strings.TrimPrefix(page, "metrics.md") }
