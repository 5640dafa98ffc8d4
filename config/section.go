// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// section reads the keys of a section, or of the whole document ("").
func (l *loader) section(file, section string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		l.bad(file, n, section, *wrongType(n, "a section of keys", example(section)))
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			l.bad(file, name, section, fault{"this is " + describe(name) + ", and a key is meant", "write it like " + example(section)})
			continue
		}
		full := join(section, name.Value)
		if first, again := lines[name.Value]; again {
			l.bad(file, name, full, fault{fmt.Sprintf("the key is there twice, first in line %d", first), "leave one of them out"})
			continue
		}
		lines[name.Value] = name.Line
		l.entry(file, section, name, value)
	}
}

func (l *loader) entry(file, section string, name, value *yaml.Node) {
	full := join(section, name.Value)
	if _, ok := sections[name.Value]; ok && section == "" {
		l.section(file, full, value)
		return
	}
	k := keyNamed(full)
	if k == nil || section == "" && strings.Contains(name.Value, ".") {
		l.unknown(file, section, name)
		return
	}
	good := true
	v := k.kind.read(value, func(item int, f fault) {
		good = false
		at := value
		if item >= 0 {
			at = value.Content[item]
		}
		l.bad(file, at, k.item(item), f)
	})
	if good {
		k.set(l.config, v)
		l.set[k.name] = Problem{File: file, Line: value.Line, Column: value.Column, Key: k.name}
	}
}

func (l *loader) unknown(file, section string, name *yaml.Node) {
	f := fault{what: "there is no such key", remedy: remedyFor(section, name.Value)}
	if k := keyNamed(name.Value); k != nil && section == "" {
		in, own := k.split()
		f.remedy = fmt.Sprintf("write it as a section, %s: and below it, indented, %s:", in, own)
	}
	if name.Value == "<<" {
		f = noAlias
	}
	l.bad(file, name, join(section, name.Value), f)
}

func (l *loader) bad(file string, n *yaml.Node, key string, f fault) {
	// A key may be anything that somebody wrote.
	if quoted := quote(key); quoted != `"`+key+`"` {
		key = quoted
	}
	l.found.add(Problem{File: file, Line: n.Line, Column: n.Column, Key: key, What: f.what, Remedy: f.remedy})
}

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// example is the first key of a section as it may be written.
func example(section string) string {
	for i := range keys {
		k := &keys[i]
		if in, own := k.split(); in == section {
			return own + ": " + k.kind.text(k.standard)
		}
	}
	return ""
}
