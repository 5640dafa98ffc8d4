// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
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
	last := "none yet"
	for i := range keys {
		k := &keys[i]
		section, _ := k.split()
		if section != last && (section != "" || i == 0 || last != "") {
			title := "At the top"
			if section != "" {
				title = "`" + section + "`"
			}
			fmt.Fprintf(&b, "\n### %s\n\n", title)
			if section != "" {
				fmt.Fprintf(&b, "%s\n\n", sections[section])
			}
			b.WriteString("| key | default | values | at reload | meaning |\n|---|---|---|---|---|\n")
		}
		last = section
		values, reload := k.kind.says(), "changes"
		if values == "" {
			values = "true or false"
		}
		if k.restart {
			reload = "needs a restart"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", k.name, k.kind.text(k.standard), values, reload, k.help)
	}
	return b.Bytes()
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
