// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/velo-agent/velo-agent/config"
)

func configFiles(t *testing.T, file string, dropIns ...string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "velo.yaml")
	if err := os.Mkdir(path+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, text := range dropIns {
		if err := os.WriteFile(filepath.Join(path+".d", string(rune('a'+i))+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestConfigVerbs(t *testing.T) {
	good := configFiles(t, "log: {level: debug}\n")
	split := configFiles(t, "user: a\n", "user: b\n", "user: c\n")
	single := configFiles(t, "user: a\n", "user: b\n")
	bad := configFiles(t, "log: {levle: debug}\nobjectives:\n  ttft: 2\n", "user: root\n")
	one := configFiles(t, "listen: x\n")
	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string // the whole of it, or as far as "..."
	}{
		"check":         {[]string{"check", good}, exitOK, good + ": ok, 0 drop-ins\n", ""},
		"check three":   {[]string{"check", split}, exitOK, split + ": ok, 2 drop-ins\n", ""},
		"check two":     {[]string{"check", single}, exitOK, single + ": ok, 1 drop-in\n", ""},
		"check bad":     {[]string{"check", bad}, exitUsage, bad + ":1:7: log.levle: there is no such key: did you mean log.level?\n" + bad + ":3:9: objectives.ttft: this is the number 2, and a duration is meant: write it like 200ms, 2s or 24h\n" + bad + ".d/a.yaml:1:7: user: ...", "velo-agent: " + bad + ": 3 problems, told on standard output with what to do\n"},
		"check one":     {[]string{"check", one}, exitUsage, one + ":1:9: listen: ...", "velo-agent: " + one + ": 1 problem, told on standard output with what to do\n"},
		"check missing": {[]string{"check", "/no/such"}, exitUsage, "/no/such: cannot be read: no such file or directory: create it, or name another\n", "velo-agent: /no/such: 1 problem, ..."},
		"show":          {[]string{"show", split}, exitOK, "# The configuration of velo-agent...", ""},
		"show bad":      {[]string{"show", bad}, exitUsage, "", "velo-agent: " + bad + ":1:7: log.levle: ..."},
		"two files":     {[]string{"check", good, bad}, exitUsage, "", "velo-agent: \"" + bad + "\": give one file..."},
		"no name":       {[]string{"check", ""}, exitUsage, "", "velo-agent: the file's name is empty\n"},
		"flag":          {[]string{"check", "--jsn"}, exitUsage, "", "velo-agent: no such flag: --jsn..."},
		"flag behind":   {[]string{"check", good, "--json"}, exitUsage, "", "velo-agent: no such flag: --json; `velo-agent config check --help` lists them\n"},
		"schema of":     {[]string{"schema", good}, exitUsage, "", "velo-agent: \"" + good + "\": this verb takes no argument\n"},
		"wrong verb":    {[]string{"chek"}, exitUsage, "", "velo-agent: no such verb: \"chek\"; did you mean \"check\"?..."},
		"help":          {[]string{"check", "--help"}, exitOK, "NAME:\n   velo-agent config check...", ""},
		"alone":         {nil, exitOK, "NAME:\n   velo-agent config...", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := program(t, nil, append([]string{"config"}, c.args...)...)
			if got.code != c.code {
				t.Errorf("ended with %d, want %d", got.code, c.code)
			}
			for _, p := range [][2]string{{got.stdout, c.stdout}, {got.stderr, c.stderr}} {
				if begin, open := strings.CutSuffix(p[1], "..."); p[0] != p[1] && !(open && strings.HasPrefix(p[0], begin)) {
					t.Errorf("said %q, want %q", p[0], p[1])
				}
			}
		})
	}
}

// What is shown is a configuration, which is shown the same again.
func TestConfigShowIsAConfig(t *testing.T) {
	file := configFiles(t, "log: {level: debug}\n", "watch: {ports: [8000]}\n")
	first := program(t, nil, "config", "show", file)
	second := program(t, nil, "config", "show", configFiles(t, first.stdout))
	if first.code != exitOK || first.stdout != second.stdout || strings.Count(first.stdout, "CHANGED.") != 2 {
		t.Errorf("shown first\n%s\nthen\n%s%s", first.stdout, second.stdout, second.stderr)
	}
	for _, args := range [][]string{{"--json", file}, {file, "--json"}} {
		got := program(t, nil, append([]string{"config", "show"}, args...)...)
		var v struct {
			Watch struct{ Ports []uint16 }
			Log   struct{ Level string }
		}
		if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || len(v.Watch.Ports) != 1 || v.Log.Level != "debug" {
			t.Errorf("%q: got %+v, %v: %s", args, v, err, got.stderr)
		}
	}
}

func TestConfigNeedsNoFile(t *testing.T) {
	if _, err := os.Stat(filepath.Dir(config.DefaultPath)); !errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is there on this machine", filepath.Dir(config.DefaultPath))
	}
	for _, args := range [][]string{{"config", "check"}, {"config", "check", config.DefaultPath}} {
		got := program(t, nil, args...)
		if want := config.DefaultPath + ": not there, so the defaults hold, 0 drop-ins\n"; got.code != exitOK || got.stdout != want {
			t.Errorf("%q ended with %d and said %q, want %q", args, got.code, got.stdout, want)
		}
	}
	if got := program(t, nil, "config", "show"); got.stdout != string(config.Show(config.Default())) {
		t.Errorf("ended with %d and showed %s", got.code, got.stdout)
	}
}

func TestConfigSchemaIsJSON(t *testing.T) {
	got := program(t, nil, "config", "schema")
	var v struct{ Properties map[string]any }
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || v.Properties["watch"] == nil {
		t.Errorf("ended with %d and printed %q, %v", got.code, got.stdout, err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("needs /dev/full: %v", err)
	}
	defer full.Close()
	if got := program(t, full, "config", "schema"); got.code != exitInternal || !strings.Contains(got.stderr, "no space left") {
		t.Errorf("a full disk: ended with %d and said %q", got.code, got.stderr)
	}
}
