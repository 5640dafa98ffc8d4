// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDropIns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "velo-agent.yaml")
	put(t, file, "watch: {engines: false, ports: [8000, 8001]}\nobjectives:\n  ttft: 1s\n  gap: 100ms\nlog: {level: debug}\n")
	put(t, file+".d/20-b.yaml", "objectives: {ttft: 3s}\n")
	put(t, file+".d/10-a.yaml", "objectives: {ttft: 5s}\nwatch: {ports: [9000]}\n")
	put(t, file+".d/30-empty.yaml", "# nothing yet\n")
	put(t, file+".d/.40-hidden.yaml", "no: config\n")
	put(t, file+".d/50-other.yml", "no: config\n")
	got, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Watch = Watch{Ports: []uint16{9000}}
	want.Objectives = Objectives{3 * time.Second, 100 * time.Millisecond}
	want.Log.Level = "debug"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	files, err := Files(file)
	if err != nil || !slices.Equal(files, []string{file, file + ".d/10-a.yaml", file + ".d/20-b.yaml", file + ".d/30-empty.yaml"}) {
		t.Errorf("%q are read, %v", files, err)
	}

	second := filepath.Join(t.TempDir(), "second.yaml")
	put(t, second, "watch: {ports: []}\n")
	if _, err := Load(file, second); err == nil || !strings.Contains(err.Error(), "nothing would be watched") {
		t.Errorf("an empty list does not replace one: %v", err)
	}
}

func TestNoFileNeeded(t *testing.T) {
	if got, err := Load(); err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Dir(DefaultPath)); !errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is there on this machine", filepath.Dir(DefaultPath))
	}
	if got, err := Load(DefaultPath); err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("got %+v, %v", got, err)
	}
	if files, err := Files(DefaultPath); len(files) != 0 || err != nil {
		t.Errorf("got %q, %v", files, err)
	}
}

// All problems of all files are told, those of one file by their lines.
func TestAllFilesAreTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, "log: {levle: debug}\nlisten: 1\nlog: {}\n")
	put(t, file+".d/b.yaml", "user: root\n")
	put(t, file+".d/c.yaml", "user: [\n")
	put(t, file+".d/d.yaml/e", "")
	_, err := Load(file)
	want := strings.ReplaceAll(`FILE:1:7: log.levle: there is no such key: did you mean log.level?
FILE:2:9: listen: this is the number 1, and an address host:port is meant: if it is meant, put it in quotes: "1"
FILE:3:1: log: the key is there twice, first in line 1: leave one of them out
FILE.d/b.yaml:1:7: user: "root" is root, whose rights the daemon gives up: give a user's name or number other than root like nobody
FILE.d/c.yaml:1:7: this is not YAML: did not find expected node content: see to quotes, brackets, colons and indentation here
FILE.d/d.yaml: cannot be read: is a directory: name a file; drop-ins go into FILE.d`, "FILE", file)
	want = strings.Replace(want, "into "+file+".d", "into FILE.d", 1)
	if !errors.Is(err, ErrConfig) || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name    string
		prepare func(file string) error
		cause   error
		says    string
	}{
		{"missing", func(string) error { return nil }, fs.ErrNotExist, "FILE: cannot be read: no such file or directory: create it, or name another"},
		{"directory", func(f string) error { return os.Mkdir(f, 0o755) }, syscall.EISDIR, "FILE: cannot be read: is a directory: name a file; drop-ins go into FILE.d"},
		{"dangling", func(f string) error { return os.Symlink("/no/such", f) }, fs.ErrNotExist, "FILE: cannot be read: no such file or directory: create it, or name another"},
		{"long", func(f string) error {
			return os.WriteFile(f, []byte(strings.Repeat("#", longestFile+1)), 0o644)
		}, errTooLong, "FILE: cannot be read: it has more than 1MiB: is this the right file?"},
		{"flat", func(f string) error {
			return errors.Join(os.WriteFile(f, nil, 0o644), os.WriteFile(f+".d", nil, 0o644))
		}, syscall.ENOTDIR, "FILE.d: cannot be read: not a directory: drop-ins are files in a directory of this name"},
	} {
		file := filepath.Join(dir, c.name)
		if err := c.prepare(file); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file)
		if !errors.Is(err, ErrConfig) || !errors.Is(err, c.cause) {
			t.Errorf("%s: %v is not ErrConfig, %v", c.name, err, c.cause)
		}
		if want := strings.Replace(c.says, "FILE", file, 1); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", c.name, err, want)
		}
	}
}

// A pipe is read like a file, and one that nobody writes into is empty.
func TestPipe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(file); err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLongestFileIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	text := "drain_timeout: 1s\n"
	put(t, file, text+strings.Repeat("#", longestFile-len(text)))
	if got, err := Load(file); err != nil || got.DrainTimeout != time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
}
