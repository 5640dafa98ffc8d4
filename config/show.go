// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Show returns c as YAML that [Load] reads back: every key, with its help and
// default as a comment, and a mark where it differs from the default.
func Show(c *Config) []byte {
	var b bytes.Buffer
	b.WriteString("# The configuration of velo-agent. Keys marked CHANGED differ from their default.\n")
	last := ""
	for i := range keys {
		k := &keys[i]
		section, own := k.split()
		b.WriteByte('\n')
		if section != last && section != "" {
			fmt.Fprintf(&b, "# %s\n%s:\n", sections[section], section)
		}
		last = section
		indent := ""
		if section != "" {
			indent = "  "
		}
		for _, text := range []string{k.help, k.facts(c)} {
			for _, line := range wrap(text, 88-len(indent)) {
				fmt.Fprintf(&b, "%s# %s\n", indent, line)
			}
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, own, k.kind.text(k.get(c)))
	}
	return b.Bytes()
}

// facts are what is known of a key beside its help.
func (k *key) facts(c *Config) string {
	s := "Default: " + k.kind.text(k.standard)
	if says := k.kind.says(); says != "" {
		s += " (" + says + ")"
	}
	s += "."
	if k.restart {
		s += " Needs a restart."
	}
	if k.differs(c) {
		s += " CHANGED."
	}
	return s
}

// ShowJSON returns c as JSON that follows [Schema].
func ShowJSON(c *Config) []byte {
	root := map[string]any{}
	for i := range keys {
		k := &keys[i]
		section, own := k.split()
		at := root
		if section != "" {
			if root[section] == nil {
				root[section] = map[string]any{}
			}
			at = root[section].(map[string]any)
		}
		at[own] = k.kind.json(k.get(c))
	}
	return encode(root)
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // maps of strings, numbers and the like have an encoding
	}
	return b.Bytes()
}

// wrap breaks a text into lines of at most width bytes, where it has spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
