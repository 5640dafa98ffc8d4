// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Output is what a guest's program printed, and what the kernel said beside it.
type Output struct {
	Stdout  string
	Stderr  string
	Console string // every other line: the firmware's and the kernel's

	Boot time.Duration // from power-on to the program's start, wall clock
	Ran  time.Duration // from its start to its end, wall clock
}

// console reads the serial line of one guest and tells the program's lines from
// the kernel's.
type console struct {
	out     Output
	stdout  strings.Builder
	stderr  strings.Builder
	log     strings.Builder
	began   time.Time
	started time.Time
	ended   bool
	code    int
	err     error
	last    []string
}

func newConsole(began time.Time) *console { return &console{began: began} }

// read takes lines until the program has ended or r has.
func (c *console) read(r io.Reader) error {
	defer func() {
		c.out.Stdout, c.out.Stderr, c.out.Console = c.stdout.String(), c.stderr.String(), c.log.String()
	}()
	br := bufio.NewReaderSize(r, 64<<10)
	for !c.ended {
		line, err := br.ReadString('\n')
		if line != "" {
			c.line(strings.TrimRight(line, "\r\n"), err == nil)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the console: %w", err)
		}
	}
	return nil
}

// line takes one line; whole says that its end was seen, without which an exit
// code may be cut short and is not believed.
func (c *console) line(s string, whole bool) {
	c.last = append(c.last, s)
	if len(c.last) > tailLines {
		c.last = c.last[1:]
	}
	// The firmware ends with cursor movements and no new line.
	if i := strings.LastIndex(s, MarkStart); i > 0 && c.started.IsZero() {
		s = s[i:]
	}
	switch {
	case s == MarkStart && c.started.IsZero():
		c.started = time.Now()
		c.out.Boot = c.started.Sub(c.began)
	case strings.HasPrefix(s, MarkOut):
		c.stdout.WriteString(s[len(MarkOut):] + "\n")
	case strings.HasPrefix(s, MarkErr):
		c.stderr.WriteString(s[len(MarkErr):] + "\n")
	case strings.HasPrefix(s, MarkError):
		c.err = fmt.Errorf("preparing the guest: %s", s[len(MarkError):])
		c.ended = whole
	case strings.HasPrefix(s, MarkExit) && whole && !c.started.IsZero():
		code, err := strconv.Atoi(s[len(MarkExit):])
		if err != nil {
			c.log.WriteString(s + "\n")
			return
		}
		c.code, c.ended = code, true
		c.out.Ran = time.Since(c.started)
	default:
		c.log.WriteString(s + "\n")
	}
}

// result is the exit code, if the program ran to its end.
func (c *console) result() (int, bool) { return c.code, c.ended && c.err == nil }

// tail is the last lines of the console, the program's included.
func (c *console) tail() string { return strings.Join(c.last, "\n") }
