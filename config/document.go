// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// place is where in a file something is. Both count from 1; columns are characters.
type place struct{ line, column int }

// parse turns the bytes of a file into the node of its only document, or nil where
// there is none. What is not YAML, and what of YAML a configuration does not need,
// goes to bad; the node is then nil.
func parse(data []byte, bad func(at place, f fault)) *yaml.Node {
	clean := true
	check := func(at place, f fault) {
		clean = false
		bad(at, f)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if checkBytes(data, check); !clean {
		return nil
	}
	first, second, err := documents(data)
	if err != nil {
		check(syntaxError(data))
		return nil
	}
	if second != nil {
		check(place{second.Line, second.Column}, fault{"a second document begins here", "a file holds one: put more into files of the drop-in directory"})
	}
	if refuse(first, check); !clean || first == nil {
		return nil
	}
	return first.Content[0]
}

// mostMarks bounds what the parser makes of a file: each node takes some 200 bytes
// of memory and at least one of the marks that are counted.
const mostMarks = 100_000

// checkBytes finds what is no text, and indentation that YAML would not take. A
// file that is no text is told of once.
func checkBytes(data []byte, bad func(place, fault)) {
	if n := marks(data); n > mostMarks {
		bad(place{1, 1}, fault{fmt.Sprintf("the file has %d signs that begin or end values", n), fmt.Sprintf("a configuration needs fewer than %d", mostMarks)})
		return
	}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if i := bytes.IndexByte(text, '\t'); i >= 0 && len(bytes.TrimLeft(text[:i], " ")) == 0 {
			bad(place{line, i + 1}, fault{"a tab indents the line", "indent with spaces"})
		}
		column := 0
		for i, r := range string(text) {
			column++
			at := place{line, column}
			switch {
			case r == utf8.RuneError && !bytes.HasPrefix(text[i:], []byte("\ufffd")):
				bad(at, fault{fmt.Sprintf("the byte 0x%02x is not UTF-8", text[i]), "save the file as UTF-8"})
				return
			case r == '\r' && !bytes.HasPrefix(text[i:], []byte("\r\n")), unprintable(r):
				bad(at, fault{fmt.Sprintf("there is a control character (%U)", r), "delete it"})
				return
			}
		}
	}
}

// unprintable says whether YAML refuses a character, or takes it for a line's end
// that editors do not show.
func unprintable(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	case '\u2028', '\u2029', '\ufffe', '\uffff':
		return true
	}
	return r < ' ' || r >= 0x7f && r <= 0x9f
}

func marks(data []byte) int {
	n := 0
	for _, b := range data {
		if strings.IndexByte(",:[]{}?-*&!\n", b) >= 0 {
			n++
		}
	}
	return n
}

// documents returns the first document and, where there is one, the second.
func documents(data []byte) (first, second *yaml.Node, err error) {
	defer func() {
		// The parser panics where it finds itself in the wrong.
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data))
	for _, doc := range []**yaml.Node{&first, &second} {
		n := new(yaml.Node)
		if err := d.Decode(n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		*doc = n
	}
	return first, second, nil
}

var (
	lineInError   = regexp.MustCompile(`^yaml: (line \d+: )?`)
	unknownAnchor = regexp.MustCompile(`^yaml: unknown anchor '(.*)' referenced$`)
)

// syntaxError says where and why the parser gives up. The parser names at best the
// line where the surrounding section begins, so the place is sought: the end of the
// shortest beginning of the file that fails with the same words.
func syntaxError(data []byte) (place, fault) {
	fails := func(n int) string {
		for n < len(data) && !utf8.RuneStart(data[n]) {
			n--
		}
		// The parser forgets the line of what begins in the first.
		_, _, err := documents(append([]byte("\n"), data[:n]...))
		return fmt.Sprint(err)
	}
	whole := fails(len(data))
	end := sort.Search(len(data), func(n int) bool { return fails(n) == whole })
	if m := unknownAnchor.FindStringSubmatch(whole); m != nil {
		return placeOf(data, bytes.LastIndex(data[:end], []byte("*"+m[1]))), noAlias
	}
	_, last := utf8.DecodeLastRune(data[:end])
	return placeOf(data, end-last), fault{"this is not YAML: " + lineInError.ReplaceAllString(whole, ""), "see to quotes, brackets, colons and indentation here"}
}

// placeOf is where the byte of this index is; of one before all, the first.
func placeOf(data []byte, index int) place {
	before := data[:max(index, 0)]
	begin := bytes.LastIndexByte(before, '\n') + 1
	return place{bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[begin:]) + 1}
}

var noAlias = fault{"anchors and aliases are not read", "write the value out"}

// refuse finds what could make a small file large, or a value other than it looks.
func refuse(n *yaml.Node, bad func(place, fault)) {
	if n == nil {
		return
	}
	at := place{n.Line, n.Column}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		bad(at, noAlias)
	case n.Style&yaml.TaggedStyle != 0:
		bad(at, fault{"the tag " + quote(n.Tag) + " is not read", "write the value without it"})
	}
	for _, c := range n.Content {
		refuse(c, bad)
	}
}
