// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Pages and headings that are written elsewhere, and may not be there yet.
var writtenElsewhere = []string{
	"metrics.md", "daemon.md", "rights.md", "record.md", "configuration.md", "accept/emfile.md",
	"findings.md#nagle_writes", "probes.md#cost",
}

func TestDocsPages(t *testing.T) {
	done := map[string]bool{}
	for _, f := range everything() {
		if done[f.Docs] {
			continue
		}
		done[f.Docs] = true
		t.Run(f.Docs, func(t *testing.T) { wantPage(t, f.Docs) })
	}
}

func TestRunbooks(t *testing.T) {
	for _, r := range Rules() {
		if r.Alert != "" {
			t.Run(r.Alert, func(t *testing.T) { wantPage(t, strings.TrimPrefix(r.Runbook(), docs)) })
		}
	}
}

// wantPage fails where a page of docs/, or its heading, does not exist.
func wantPage(t *testing.T, page string) {
	t.Helper()
	path, anchor, _ := strings.Cut(page, "#")
	text, err := os.ReadFile(filepath.Join("..", "docs", path))
	if err == nil && (anchor == "" || headings(string(text))[anchor]) {
		return
	}
	for _, w := range writtenElsewhere {
		if w == page || w == path {
			t.Skipf("%s is written elsewhere and not there yet", page)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	t.Errorf("docs/%s does not exist", page)
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// headings are the anchors of a page, as GitHub makes them.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		plain := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		anchors[strings.ReplaceAll(plain, " ", "-")] = true
	}
	return anchors
}
