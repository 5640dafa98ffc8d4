// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: no qemu here\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
not an event
{"Action":"pass","Package":"p"}
`

func TestSummary(t *testing.T) {
	list := filepath.Join(t.TempDir(), "allowed")
	if err := os.WriteFile(list, []byte("# why\nTestB | no qemu\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("TestB | no nginx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, events, allowed string
		code                  int
		want                  string
	}{
		{"plain", events, "", 0, "1 passed, 0 failed, 1 skipped"},
		{"allowed", events, list, 0, "TestB: b_test.go:1: no qemu here"},
		{"refused", events, other, 1, "not in the list of allowed skips"},
		{"failed", events + `{"Action":"fail","Package":"p","Test":"TestC"}`, list, 1, "1 failed"},
		{"cut off", events + `{"Action":"run","Package":"p","Test":"TestC"}`, list, 1, "FAIL p TestC"},
		{"does not build", `{"Action":"build-output","ImportPath":"q","Output":"q.go:1: what?\n"}
{"Action":"build-fail","ImportPath":"q"}`, "", 1, "q.go:1: what?"},
		{"a package without tests that passed", `{"Action":"skip","Package":"p"}`, "", 1, "0 passed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			code, err := run(options{allowed: c.allowed}, nil, strings.NewReader(c.events), &out)
			if err != nil || code != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("code %d, %v, said %q; want %d and %q", code, err, out.String(), c.code, c.want)
			}
		})
	}
}

func TestReasonsMustBeReadable(t *testing.T) {
	list := filepath.Join(t.TempDir(), "allowed")
	if err := os.WriteFile(list, []byte("TestB no bar\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readReasons(list); err == nil || !strings.Contains(err.Error(), ":1:") {
		t.Errorf("the error is %v, want one that names the line", err)
	}
}

func TestMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "truth.json")
	if err := os.WriteFile(file, []byte(`{"target":"truth","cases":[
		{"name":"a","value":1,"pass":true},{"name":"b","value":2,"unit":"ms","goal":1,"pass":false},
		{"name":"c","pass":null,"note":"no nginx"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	code, err := run(options{measured: true}, []string{file}, nil, &out)
	if err != nil || code != 1 {
		t.Errorf("code %d, %v", code, err)
	}
	for _, want := range []string{"1 passed, 1 failed, 1 skipped", "it is 2 ms, the goal is 1", "truth c: no nginx"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
}
