// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	suffix = ".seg"
	digits = 20 // of the largest sequence number, so that names sort
)

// segment is what is known of one file of the store. Without snapshots nothing is
// known of its times.
type segment struct {
	first uint64 // the sequence number in its name
	size  int64

	snapshots        int
	firstAt, lastAt  time.Time     // wall clock, in order of sequence
	earliest, latest time.Time     // wall clock, in order of time
	begins, ends     time.Duration // on the time line of Store.age
}

// add counts a snapshot.
func (g *segment) add(at time.Time, age time.Duration) {
	if g.snapshots == 0 {
		g.firstAt, g.earliest, g.latest, g.begins = at, at, at, age
	}
	g.snapshots++
	g.lastAt, g.ends = at, age
	if at.Before(g.earliest) {
		g.earliest = at
	}
	if at.After(g.latest) {
		g.latest = at
	}
}

// outside reports whether no snapshot lies within [from, to), so far as is known.
func (g *segment) outside(from, to time.Time) bool {
	return g.snapshots > 0 && (g.latest.Before(from) || !g.earliest.Before(to))
}

// path returns the file's name within dir.
func (g *segment) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d%s", digits, g.first, suffix))
}

// list returns the segments of a store with their sizes as they are now, oldest
// first. Files of other names are not looked at.
func list(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		first, err := strconv.ParseUint(name, 10, 64)
		if !ok || err != nil || len(name) != digits || !e.Type().IsRegular() {
			continue
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // a writer just dropped it
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, segment{first: first, size: st.Size()})
	}
	return out, nil
}
