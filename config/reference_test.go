// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "write the reference in docs/configuration.md anew")

const (
	docsPage       = "../docs/configuration.md"
	referenceBegin = "<!-- from here on written by `go test ./config -update` -->\n"
)

// reference is the generated end of the docs page.
func reference() []byte {
	var b bytes.Buffer
	for _, name := range append([]string{""}, namesIn("")...) {
		switch {
		case name == "":
			b.WriteString("\n### At the top\n\n")
		case sections[name] == "":
			continue
		default:
			fmt.Fprintf(&b, "\n### `%s`\n\n%s\n\n", name, sections[name])
		}
		b.WriteString("| key | default | values | at reload | meaning |\n|---|---|---|---|---|\n")
		for i := range keys {
			k := &keys[i]
			if section, _ := k.split(); section == name {
				b.WriteString(k.tableRow())
			}
		}
	}
	return b.Bytes()
}

func (k *key) tableRow() string {
	values, reload := k.kind.says(), "changes"
	if values == "" {
		values = "true or false"
	}
	if k.restart {
		reload = "needs a restart"
	}
	return fmt.Sprintf("| `%s` | `%s` | %s | %s | %s |\n", k.name, k.kind.text(k.standard), values, reload, k.help)
}

func TestReferenceIsInTheDocs(t *testing.T) {
	page, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, written, found := bytes.Cut(page, []byte(referenceBegin))
	if !found {
		t.Fatalf("%s lacks the line %q", docsPage, referenceBegin)
	}
	if bytes.Equal(written, reference()) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the table of keys: run go test ./config -update", docsPage)
	}
	if err := os.WriteFile(docsPage, append(append(before, referenceBegin...), reference()...), 0o644); err != nil {
		t.Fatal(err)
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func TestExamplesOfTheDocs(t *testing.T) {
	page, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	examples := yamlBlock.FindAllSubmatch(page, -1)
	if len(examples) < 3 {
		t.Errorf("%d examples found", len(examples))
	}
	for _, e := range examples {
		if _, err := loadText(string(e[1])); err != nil {
			t.Errorf("%s%v", e[1], err)
		}
	}
}
