// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"reflect"
	"testing"
)

// FuzzLoad feeds files of any bytes: none makes Load panic, and what it takes is
// valid and is the same after it was shown and read again.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", "{", "user: a\n---\n", "a: &a [*a]\n", "watch: {ports: [8000, 8080]}\n", "\xff", "\t- x", "? {}\n: []\n",
		"record: {max_bytes: 2GiB, keep: 48h}\nlog:\n  level: 'warn'\n", "socket: {path: \"/\\u00e9\"}\n", "%YAML 1.1\n---\n...\n", "a: |\n  b\n", "*000C8\nՑ$",
	} {
		f.Add([]byte(seed))
	}
	f.Add(Show(Default()))
	f.Add(ShowJSON(changed()))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := loadText(string(text))
		if err != nil {
			var e *Error
			if !errors.Is(err, ErrConfig) || !errors.As(err, &e) {
				t.Fatalf("%v is no ErrConfig", err)
			}
			for _, p := range e.Problems {
				if p.File == "" || p.Line < 1 || p.Column < 1 || p.What == "" || p.Remedy == "" {
					t.Fatalf("a problem says too little: %+v", p)
				}
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("taken, and not valid: %v", err)
		}
		shown := Show(c)
		again, err := loadText(string(shown))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%v\ngot  %+v\nwant %+v\n%s", err, again, c, shown)
		}
	})
}
