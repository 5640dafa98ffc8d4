// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strconv"
	"strings"
)

// mount is one line of mountinfo.
type mount struct {
	root    string // the folder of the file system that is mounted
	point   string // where
	kind    string // "cgroup2", "proc", ...
	options string // of the file system, comma-separated
}

// mounts reads the mounts that this process sees. (mountinfo, unlike
// /proc/mounts, gives the root of each, which differs from "/" in containers.)
func (h Host) mounts() ([]mount, error) {
	name := h.path("self", "mountinfo")
	b, _, err := readSmall(name, 4<<20)
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	return parseMounts(name, b)
}

// parseMounts reads "id parent dev root point options tags... - kind source options".
func parseMounts(name string, b []byte) ([]mount, error) {
	var out []mount
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" {
			continue
		}
		head, tail, ok := strings.Cut(line, " - ")
		f, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(f) < 6 || len(t) < 2 {
			return nil, malformed(name, i+1, "a line of mountinfo", line)
		}
		m := mount{root: unescape(f[3]), point: unescape(f[4]), kind: t[0]}
		if len(t) > 2 {
			m.options = t[2]
		}
		out = append(out, m)
	}
	return out, nil
}

// unescape turns \040 and its like back into the byte.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
