// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"strconv"
	"strings"
	"time"
)

// A Case is what the X-Case header of a request asks of the victim. The zero
// value asks for one chunk at once. The victim's own delays before it has read
// the header (accept, reader, handoff) are set on the Victim.
type Case struct {
	Engine time.Duration   // sleep between reading the request and the first write
	Gaps   []time.Duration // sleep before chunk 1, 2, …
	Gap    time.Duration   // sleep before each chunk that Gaps does not name
	Chunks int             // content chunks; 0 means as many as Gaps and Sizes name, at least 1
	Sizes  []int           // bytes of the event in chunk 0, 1, …; never below the natural size
	Early  bool            // headers leave before Engine
	Joined bool            // headers travel in the write of the first chunk (C and Go)
	Role   bool            // a role-only chunk precedes the content
	Label  string          // words without meaning to the victim, kept in the log
}

// String returns the header's value, which is also the log's case.
func (c Case) String() string {
	var words []string
	add := func(key string, values ...string) {
		words = append(words, key+"="+strings.Join(values, ","))
	}
	if c.Engine > 0 {
		add("engine", millis(c.Engine))
	}
	if len(c.Gaps) > 0 {
		var v []string
		for _, g := range c.Gaps {
			v = append(v, millis(g))
		}
		add("gaps", v...)
	}
	if c.Gap > 0 {
		add("gap", millis(c.Gap))
	}
	if c.Chunks > 0 {
		add("chunks", strconv.Itoa(c.Chunks))
	}
	if len(c.Sizes) > 0 {
		var v []string
		for _, n := range c.Sizes {
			v = append(v, strconv.Itoa(n))
		}
		add("sizes", v...)
	}
	if c.Early {
		words = append(words, "early")
	}
	if c.Joined {
		words = append(words, "joined")
	}
	if c.Role {
		words = append(words, "role")
	}
	if c.Label != "" {
		words = append(words, c.Label)
	}
	return strings.Join(words, ";")
}

func millis(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds()*1e3, 'f', -1, 64) + "ms"
}

// ParseCase reads a header's value. Words that it does not know become the label.
func ParseCase(s string) Case {
	var c Case
	var label []string
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ';' || r == ' ' }) {
		key, value, _ := strings.Cut(word, "=")
		values := strings.Split(value, ",")
		switch key {
		case "engine":
			c.Engine = duration(value)
		case "gap":
			c.Gap = duration(value)
		case "gaps":
			for _, v := range values {
				c.Gaps = append(c.Gaps, duration(v))
			}
		case "sizes":
			for _, v := range values {
				n, _ := strconv.Atoi(v)
				c.Sizes = append(c.Sizes, n)
			}
		case "chunks":
			c.Chunks, _ = strconv.Atoi(value)
		case "early":
			c.Early = true
		case "joined":
			c.Joined = true
		case "role":
			c.Role = true
		default:
			label = append(label, word)
		}
	}
	c.Label = strings.Join(label, ";")
	return c
}

// duration reads "5ms"; what it cannot read is no delay.
func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// NumChunks returns how many content chunks the answer has.
func (c Case) NumChunks() int {
	if c.Chunks > 0 {
		return c.Chunks
	}
	return max(1, len(c.Gaps)+1, len(c.Sizes))
}

// GapBefore returns the sleep before content chunk i.
func (c Case) GapBefore(i int) time.Duration {
	switch {
	case i == 0:
		return 0
	case i <= len(c.Gaps):
		return c.Gaps[i-1]
	}
	return c.Gap
}

// Size returns the asked size of content chunk i in bytes, 0 for the natural one.
func (c Case) Size(i int) int {
	if i < len(c.Sizes) {
		return c.Sizes[i]
	}
	return 0
}
