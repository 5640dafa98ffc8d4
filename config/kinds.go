// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// fault is what is wrong with a value, and what to do.
type fault struct{ what, remedy string }

// kind is a sort of value. bad is told of each fault, with the index of the list's
// item that has it, or -1.
type kind interface {
	// read turns a node into a value that it has checked. The value is of use
	// only where bad was not called.
	read(n *yaml.Node, bad func(item int, f fault)) any
	check(v any, bad func(item int, f fault))
	format
}

// format is how values are written, and how their range is told.
type format interface {
	text(v any) string      // in YAML
	json(v any) any         // what encoding/json writes
	schema() map[string]any // JSON schema
	says() string           // the range, for people
}

// scalar is a kind of a single value.
type scalar interface {
	convert(n *yaml.Node) (any, *fault)
	verify(v any) *fault
	format
}

// single makes a kind of a scalar.
type single struct{ scalar }

func (s single) read(n *yaml.Node, bad func(int, fault)) any {
	v, f := s.convert(n)
	if f != nil {
		bad(-1, *f)
		return nil
	}
	s.check(v, bad)
	return v
}

func (s single) check(v any, bad func(int, fault)) {
	if f := s.verify(v); f != nil {
		bad(-1, *f)
	}
}

// list is a list of different scalars, which are a T. An empty one is nil.
type list[T comparable] struct{ item scalar }

func (l list[T]) read(n *yaml.Node, bad func(int, fault)) any {
	if n.Kind != yaml.SequenceNode {
		bad(-1, *wrongType(n, "a list", l.like()))
		return nil
	}
	var out []T
	seen := map[T]int{}
	for i, c := range n.Content {
		v, f := l.item.convert(c)
		if f != nil {
			bad(i, *f)
			continue
		}
		l.one(i, v.(T), seen, bad)
		out = append(out, v.(T))
	}
	l.length(len(n.Content), bad)
	return out
}

func (l list[T]) check(v any, bad func(int, fault)) {
	seen := map[T]int{}
	for i, item := range v.([]T) {
		l.one(i, item, seen, bad)
	}
	l.length(len(v.([]T)), bad)
}

func (l list[T]) one(i int, v T, seen map[T]int, bad func(int, fault)) {
	if f := l.item.verify(v); f != nil {
		bad(i, *f)
	}
	if first, again := seen[v]; again {
		bad(i, fault{fmt.Sprintf("%s is in the list already, as [%d]", clip(l.item.text(v)), first), "name it once"})
		return
	}
	seen[v] = i
}

func (l list[T]) length(n int, bad func(int, fault)) {
	if n > mostItems {
		bad(-1, fault{fmt.Sprintf("the list has %d items", n), fmt.Sprintf("give at most %d", mostItems)})
	}
}

func (l list[T]) like() string {
	if s, ok := l.item.(words); ok {
		return "[" + s.like + "]"
	}
	return "[8000, 8080]"
}

func (l list[T]) text(v any) string {
	var items []string
	for _, item := range v.([]T) {
		items = append(items, l.item.text(item))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (l list[T]) json(v any) any {
	items := []any{}
	for _, item := range v.([]T) {
		items = append(items, l.item.json(item))
	}
	return items
}

func (l list[T]) schema() map[string]any {
	return map[string]any{"type": "array", "items": l.item.schema(), "uniqueItems": true, "maxItems": mostItems}
}

func (l list[T]) says() string { return "a list, each " + l.item.says() }

// onOff is a bool.
type onOff struct{}

func (onOff) convert(n *yaml.Node) (any, *fault) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		return nil, wrongType(n, "true or false", "true")
	}
	return strings.EqualFold(n.Value, "true"), nil
}
func (onOff) verify(any) *fault      { return nil }
func (onOff) text(v any) string      { return strconv.FormatBool(v.(bool)) }
func (onOff) json(v any) any         { return v }
func (onOff) schema() map[string]any { return map[string]any{"type": "boolean"} }
func (onOff) says() string           { return "" } // the default shows it

// port is a TCP port, a uint16.
type port struct{}

func (port) convert(n *yaml.Node) (any, *fault) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" {
		return nil, wrongType(n, "a port number", "8000")
	}
	if v, ok := decimal(n.Value); ok && v <= math.MaxUint16 {
		return uint16(v), nil
	}
	if digits(strings.TrimPrefix(n.Value, "-")) && !strings.HasPrefix(n.Value, "0") {
		return nil, &fault{clip(n.Value) + " is out of range", "a TCP port is a number from 1 to 65535"}
	}
	return nil, &fault{clip(n.Value) + " is no port number", "write it in decimal digits, like 8000"}
}

func (port) verify(v any) *fault {
	if v.(uint16) == 0 {
		return &fault{"0 is out of range", "a TCP port is a number from 1 to 65535"}
	}
	return nil
}
func (port) text(v any) string { return strconv.Itoa(int(v.(uint16))) }
func (port) json(v any) any    { return v }
func (port) says() string      { return "1 to 65535" }
func (port) schema() map[string]any {
	return map[string]any{"type": "integer", "minimum": 1, "maximum": 65535}
}

// number is an int within bounds.
type number struct{ least, most int }

func (k number) convert(n *yaml.Node) (any, *fault) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" {
		return nil, wrongType(n, "a number", strconv.Itoa(k.least))
	}
	v, ok := decimal(n.Value)
	if !ok || v > math.MaxInt32 {
		return nil, &fault{clip(n.Value) + " is no number of this range", "give " + k.says() + ", in decimal digits"}
	}
	return int(v), nil
}

func (k number) verify(v any) *fault {
	if n := v.(int); n < k.least || n > k.most {
		return &fault{strconv.Itoa(n) + " is out of range", "give " + k.says()}
	}
	return nil
}
func (number) text(v any) string { return strconv.Itoa(v.(int)) }
func (number) json(v any) any    { return v }
func (k number) says() string    { return fmt.Sprintf("%d to %d", k.least, k.most) }
func (k number) schema() map[string]any {
	return map[string]any{"type": "integer", "minimum": k.least, "maximum": k.most}
}

// span is a time.Duration within bounds.
type span struct{ least, most time.Duration }

const likeSpan = "200ms, 2s or 24h"

func (s span) convert(n *yaml.Node) (any, *fault) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return nil, wrongType(n, "a duration", likeSpan)
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil {
		return nil, &fault{quote(n.Value) + " is no duration", "write it like " + likeSpan}
	}
	return d, nil
}

func (s span) verify(v any) *fault {
	if d := v.(time.Duration); d < s.least || d > s.most {
		return &fault{formatDuration(d) + " is out of range", "give " + s.says()}
	}
	return nil
}
func (span) text(v any) string { return formatDuration(v.(time.Duration)) }
func (s span) json(v any) any  { return s.text(v) }
func (s span) says() string    { return formatDuration(s.least) + " to " + formatDuration(s.most) }
func (s span) schema() map[string]any {
	return map[string]any{"type": "string", "pattern": `^[+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`}
}

// size is a ByteSize within bounds.
type size struct{ least, most ByteSize }

const likeSize = "256MiB, 1GiB or a number of bytes"

func (s size) convert(n *yaml.Node) (any, *fault) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" && n.ShortTag() != "!!int" {
		return nil, wrongType(n, "a size", likeSize)
	}
	b, err := parseSize(n.Value)
	if err != nil {
		return nil, &fault{err.Error(), "write it like " + likeSize}
	}
	return b, nil
}

func (s size) verify(v any) *fault {
	if b := v.(ByteSize); b < s.least || b > s.most {
		return &fault{b.String() + " is out of range", "give " + s.says()}
	}
	return nil
}
func (size) text(v any) string { return v.(ByteSize).String() }
func (s size) json(v any) any  { return s.text(v) }
func (s size) says() string    { return s.least.String() + " to " + s.most.String() }
func (s size) schema() map[string]any {
	return map[string]any{
		"type": []string{"string", "integer"}, "pattern": "^[0-9]+(B|KiB|MiB|GiB|TiB)?$",
		"minimum": int64(s.least), "maximum": int64(s.most),
	}
}

// choice is one of a few words.
type choice []string

func (c choice) convert(n *yaml.Node) (any, *fault) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return nil, wrongType(n, c.says(), c[0])
	}
	return n.Value, nil
}

func (c choice) verify(v any) *fault {
	for _, w := range c {
		if v == w {
			return nil
		}
	}
	return &fault{quote(v.(string)) + " is not known", "say " + c.says()}
}
func (choice) text(v any) string { return v.(string) }
func (choice) json(v any) any    { return v }
func (c choice) says() string {
	return strings.Join(c[:len(c)-1], ", ") + " or " + c[len(c)-1]
}
func (c choice) schema() map[string]any { return map[string]any{"enum": []string(c)} }

// words is a string of a certain form.
type words struct {
	what    string // with its article
	like    string // an example, as it is written in YAML
	most    int    // bytes
	empty   bool   // may be ""
	pattern string // of the JSON schema
	check   func(string) string
}

func (w words) convert(n *yaml.Node) (any, *fault) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		f := wrongType(n, w.what, w.like)
		if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
			f.remedy = "if it is meant, put it in quotes: " + quote(n.Value)
		}
		return nil, f
	}
	return n.Value, nil
}

func (w words) verify(v any) *fault {
	s := v.(string)
	var wrong string
	switch {
	case s == "" && w.empty:
		return nil
	case s == "":
		wrong = "is empty"
	case len(s) > w.most:
		wrong = fmt.Sprintf("has %d bytes, and %d are the most", len(s), w.most)
	case !utf8.ValidString(s):
		wrong = "is not UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		wrong = "holds a control character"
	default:
		wrong = w.check(s)
	}
	if wrong == "" {
		return nil
	}
	return &fault{quote(s) + " " + wrong, "give " + w.what + " like " + w.like}
}
func (words) text(v any) string { return strconv.Quote(v.(string)) }
func (words) json(v any) any    { return v }
func (w words) says() string {
	if w.empty {
		return w.what + `, or ""`
	}
	return w.what
}

func (w words) schema() map[string]any {
	pattern := w.pattern
	if w.empty {
		pattern = "^$|" + pattern
	}
	return map[string]any{"type": "string", "pattern": pattern, "maxLength": w.most}
}

func wrongType(n *yaml.Node, want, like string) *fault {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return &fault{"there is no value", "give " + want + ", like " + like + ", or leave the key out"}
	}
	return &fault{"this is " + describe(n) + ", and " + want + " is meant", "write it like " + like}
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section of keys"
	case yaml.SequenceNode:
		return "a list"
	}
	value := clip(n.Value)
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool":
		return value + ", true or false"
	case "!!int", "!!float":
		return "the number " + value
	case "!!timestamp":
		return "the date " + value
	}
	return "the text " + quote(n.Value)
}

// longestShown is how many bytes of a value are shown in an error.
const longestShown = 64

func clip(s string) string {
	if len(s) <= longestShown {
		return s
	}
	return strings.ToValidUTF8(s[:longestShown], "") + "..."
}

func quote(s string) string { return strconv.Quote(clip(s)) }
