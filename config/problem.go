// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// ErrConfig marks every error of this package: the configuration is wrong, or
// cannot be read.
var ErrConfig = errors.New("wrong configuration")

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	File   string // "" where the configuration came from no file
	Line   int    // from 1 on; 0: the whole file
	Column int    // in characters, from 1 on
	Key    string // dotted, with [index] for an item of a list; "" where it is about none
	What   string
	Remedy string
}

// String is "file:line:column: key: what: remedy".
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
		if p.Line > 0 {
			fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
		}
		b.WriteByte(' ')
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.What + ": " + p.Remedy)
	return b.String()
}

// mostProblems is how many problems are kept; the others are only counted.
const mostProblems = 100

// Error is all that is wrong with a configuration. It is an [ErrConfig], and what
// kept a file from being read, such as [io/fs.ErrNotExist].
type Error struct {
	Problems []Problem // by file in the order of reading, then by line
	Omitted  int       // how many more there are
	causes   []error
}

// Error has one problem a line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.Omitted))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns ErrConfig and what the system said.
func (e *Error) Unwrap() []error { return append([]error{ErrConfig}, e.causes...) }

// Count is how many problems there are, those left out included.
func (e *Error) Count() int { return len(e.Problems) + e.Omitted }

func (e *Error) add(p Problem) {
	if len(e.Problems) == mostProblems {
		e.Omitted++
		return
	}
	e.Problems = append(e.Problems, p)
}

// orNil is e, or a nil error where there are no problems.
func (e *Error) orNil() error {
	if e.Count() == 0 {
		return nil
	}
	return e
}

func byPlace(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
