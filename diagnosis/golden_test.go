// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "write the golden files anew, docs/findings.md among them")

type golden struct {
	name     string
	measured func() *Measured
}

var goldens = []golden{{"healthy", healthy}, {"jammed", jammed}, {"no_ports", noPorts}, {"unprivileged", unprivileged}}

func text80(w io.Writer, r *Report) error { return WriteText(w, r, Style{}) }

func TestGolden(t *testing.T) {
	for _, c := range goldens {
		for ext, write := range map[string]func(io.Writer, *Report) error{".txt": text80, ".md": WriteMarkdown, ".json": WriteJSON} {
			var b bytes.Buffer
			if err := write(&b, Build(c.measured())); err != nil {
				t.Fatal(err)
			}
			compareFile(t, filepath.Join("testdata", c.name+ext), b.Bytes())
		}
	}
}

func compareFile(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test ./diagnosis -update writes it anew); got:\n%s", file, got)
	}
}

// No line of a page is wider than asked, names of any length excepted.
func TestTextKeepsItsWidth(t *testing.T) {
	for _, c := range goldens {
		for _, width := range []int{0, 20, 72, 100, 500} {
			var b bytes.Buffer
			if err := WriteText(&b, Build(c.measured()), Style{Width: width}); err != nil {
				t.Fatal(err)
			}
			limit := min(max(width, minWidth), maxWidth)
			if width == 0 {
				limit = defaultWidth
			}
			for line := range strings.Lines(b.String()) {
				if n := runes(strings.TrimRight(line, "\n")); n > limit {
					t.Errorf("%s at %d: %d columns: %s", c.name, width, n, line)
				}
			}
		}
	}
}

// ASCII and colour change how the page looks and not what it says.
func TestTextStyles(t *testing.T) {
	var plain, colour, ascii bytes.Buffer
	for b, style := range map[*bytes.Buffer]Style{&plain: {}, &colour: {Color: true}, &ascii: {ASCII: true}} {
		if err := WriteText(b, Build(jammed()), style); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("colours that were not asked for")
	}
	if !strings.Contains(colour.String(), "\x1b[1;31m") {
		t.Error("no colour")
	}
	stripped := regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(colour.String(), "")
	if trimLines(stripped) != trimLines(plain.String()) {
		t.Errorf("colours change the text:\n%s", stripped)
	}
	for _, r := range ascii.String() {
		if r > 0x7e {
			t.Fatalf("%q in ASCII", r)
		}
	}
	if strings.Contains(ascii.String(), "?") {
		t.Errorf("a character of our own has no ASCII form:\n%s", ascii.String())
	}
	if a, b := strings.Count(ascii.String(), "\n"), strings.Count(plain.String(), "\n"); a != b {
		t.Errorf("%d lines in ASCII, %d otherwise", a, b)
	}
}

func trimLines(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		out = append(out, strings.TrimRight(line, " \n"))
	}
	return strings.Join(out, "\n")
}

// Names of processes, roles, cgroups and the like cannot drive a terminal, break a
// line or a table, or write Markdown or HTML.
func TestHostileNames(t *testing.T) {
	raw := hostile()
	for name, write := range map[string]func(io.Writer, *Report) error{
		"text": text80, "ascii": func(w io.Writer, r *Report) error { return WriteText(w, r, Style{ASCII: true}) },
		"markdown": WriteMarkdown, "json": WriteJSON,
		// A report that was not built here.
		"foreign": func(w io.Writer, r *Report) error {
			r.Ports[0].Process, r.Findings[0].Title = raw.Ports[0].Process, raw.Ports[0].Process
			return WriteText(w, r, Style{})
		},
	} {
		var b bytes.Buffer
		if err := write(&b, Build(raw)); err != nil {
			t.Fatal(err)
		}
		out := b.String()
		for _, r := range out {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar) {
				t.Errorf("%s: %q comes through", name, r)
			}
		}
		if !strings.Contains(out, "owned") {
			t.Errorf("%s: the name is not told at all", name)
		}
		if name == "markdown" {
			for _, bad := range []string{"<script", " `rm", "0a| "} {
				if strings.Contains(out, bad) {
					t.Errorf("markdown: %q comes through", bad)
				}
			}
			for line := range strings.Lines(out) {
				bars := strings.Count(line, "|") - strings.Count(line, `\|`)
				if strings.HasPrefix(line, "|") && bars != 4 && bars != 6 && bars != 7 {
					t.Errorf("markdown: a table line of %d bars: %s", bars, line)
				}
			}
		}
	}
}

func TestCleanIsStable(t *testing.T) {
	for _, s := range []string{"", "vllm", "é 漢 µs", "a\x00\x1b\x7f\u0085\u2028\u202e\xff\ufffd", strings.Repeat("x", 5000), strings.Repeat("\u202e", 5000), `\x1b`} {
		once := clean(s)
		if twice := clean(once); once != twice {
			t.Errorf("%q becomes %q, then %q", s, once, twice)
		}
		if len(once) > maxText+16 {
			t.Errorf("%d bytes remain", len(once))
		}
	}
}

type brokenWriter struct{}

var errBroken = errors.New("pipe closed")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWritersReportErrors(t *testing.T) {
	for _, write := range []func(io.Writer, *Report) error{text80, WriteMarkdown, WriteJSON} {
		if err := write(brokenWriter{}, Build(healthy())); !errors.Is(err, errBroken) {
			t.Errorf("error is %v", err)
		}
	}
}

// docs/findings.md is written from the rules, and the pages that they name exist.
func TestFindingsPage(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("<!-- SPDX-License-Identifier: Apache-2.0. Written from the rules: go test ./diagnosis -update -->\n\n# Findings\n\n" +
		"What `velo-agent diagnose` can say, and when it says so. A finding is never raised on what was not measured.\n\n" +
		"Severities: *critical* and *warning* end `diagnose` with exit code 1, a *notice* does not.\n\n" +
		"A stage is *heavy* when it " + heavyWhen + ".\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "\n## %s\n\nRaised when %s.\n", r.id, r.when)
		if page, _, _ := strings.Cut(r.docs, "#"); page != "docs/findings.md" {
			rel := strings.TrimPrefix(page, "docs/")
			fmt.Fprintf(&b, "\nThe figures behind it: [%s](%s).\n", rel, rel)
		}
	}
	compareFile(t, "../docs/findings.md", b.Bytes())
	for _, r := range rules {
		page, anchor, _ := strings.Cut(r.docs, "#")
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Error(err)
		}
		if anchor != "" && !strings.Contains(string(text), "\n## "+anchor+"\n") {
			t.Errorf("%s has no heading %s", page, anchor)
		}
	}
}
