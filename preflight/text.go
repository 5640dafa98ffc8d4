// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"io"
	"os"
	"strings"
	"unicode"
)

// Bounds of what is kept of texts that a process chooses itself, in bytes.
const (
	maxCmdline = 4096
	maxSmall   = 64 << 10
)

// readSmall returns at most limit bytes of a file, and whether that was less
// than all of it.
func readSmall(name string, limit int) (b []byte, cut bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	b, err = io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, false, err
	}
	if len(b) > limit {
		return b[:limit], true, nil
	}
	return b, false, nil
}

// clean makes a text safe to print: what is not printable (control characters,
// marks that reverse the direction of writing, broken UTF-8) becomes '?'.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

const redacted = "[redacted]"

// splitCmdline turns the bytes of /proc/PID/cmdline into clean arguments without
// secrets. The padding that a rewritten title leaves behind is dropped.
func splitCmdline(b []byte) []string {
	raw := strings.TrimRight(string(b), "\x00 ")
	if raw == "" {
		return nil
	}
	args := strings.Split(raw, "\x00")
	hide := false
	for i, a := range args {
		a = clean(a)
		name, _, hasValue := strings.Cut(a, "=")
		switch {
		case hide && !strings.HasPrefix(a, "-"):
			a, hide = redacted, false
		case secretName(name) && hasValue:
			a, hide = name+"="+redacted, false
		default:
			hide = secretName(name) && strings.HasPrefix(a, "-")
			a = hideUserinfo(a)
		}
		args[i] = a
	}
	return args
}

// secretName reports whether an option or variable of this name holds a secret,
// like --api-key, --hf-token or DB_PASSWORD.
func secretName(name string) bool {
	if len(name) > 64 {
		return false
	}
	for _, w := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' }) {
		switch w {
		case "key", "apikey", "token", "secret", "password", "passwd", "credential", "credentials", "authorization":
			return true
		}
	}
	return false
}

// hideUserinfo removes "user:password@" from a URL.
func hideUserinfo(a string) string {
	scheme, rest, ok := strings.Cut(a, "://")
	if !ok {
		return a
	}
	host := rest
	if i := strings.IndexAny(host, "/?#"); i >= 0 {
		host = host[:i]
	}
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		return scheme + "://" + redacted + rest[at:]
	}
	return a
}
