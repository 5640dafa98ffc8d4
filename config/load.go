// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// longestFile is how many bytes a file may have.
const longestFile = 1 << 20

// Load reads each file, followed by its drop-ins (see [Files]), over the defaults.
// What is read later wins, key by key; a list replaces a list. Without paths it is
// [Default]. Its error is an [*Error] with every problem of every file.
func Load(paths ...string) (*Config, error) {
	l := newLoader()
	for _, p := range paths {
		files, err := Files(p)
		if err != nil {
			l.unread(p+".d", err)
		}
		for _, f := range files {
			data, err := readFile(f)
			if err != nil {
				l.unread(f, err)
				continue
			}
			l.file(f, data)
		}
	}
	return l.result()
}

// Files returns what [Load] reads for a path, in order: the file itself, then the
// files PATH.d/*.yaml in lexical order, hidden ones left out. [DefaultPath] is left
// out where it is missing; any other path comes first in any case. An error is
// about PATH.d, and comes beside the files.
func Files(path string) ([]string, error) {
	var files []string
	if _, err := os.Stat(path); path != DefaultPath || !errors.Is(err, fs.ErrNotExist) {
		files = append(files, path)
	}
	entries, err := os.ReadDir(path + ".d")
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, ".yaml") && !strings.HasPrefix(n, ".") {
			files = append(files, filepath.Join(path+".d", n))
		}
	}
	return files, err
}

var errTooLong = fmt.Errorf("it has more than %v", ByteSize(longestFile))

func readFile(name string) ([]byte, error) {
	// Nobody may ever write into a named pipe.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, longestFile+1))
	if err == nil && len(data) > longestFile {
		err = errTooLong
	}
	return data, err
}

// loader gathers files into a configuration, and what is wrong with them.
type loader struct {
	config *Config
	set    map[string]Problem // the place at which a key got its value
	found  Error
}

func newLoader() *loader { return &loader{config: Default(), set: map[string]Problem{}} }

func (l *loader) unread(file string, err error) {
	why, remedy := err, "see to it that velo-agent may read it"
	var p *fs.PathError
	if errors.As(err, &p) {
		why = p.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		remedy = "create it, or name another"
	case errors.Is(err, errTooLong):
		remedy = "is this the right file?"
	case errors.Is(err, syscall.EISDIR):
		remedy = "name a file; drop-ins go into FILE.d"
	case errors.Is(err, syscall.ENOTDIR):
		remedy = "drop-ins are files in a directory of this name"
	}
	l.found.causes = append(l.found.causes, err)
	l.found.add(Problem{File: file, What: fmt.Sprintf("cannot be read: %v", why), Remedy: remedy})
}

// file reads one file's bytes.
func (l *loader) file(name string, data []byte) {
	before := len(l.found.Problems)
	root := parse(data, func(at place, f fault) {
		l.found.add(Problem{File: name, Line: at.line, Column: at.column, What: f.what, Remedy: f.remedy})
	})
	if root != nil && !(root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" && root.Value == "") {
		l.section(name, "", root)
	}
	slices.SortStableFunc(l.found.Problems[before:], byPlace)
}

// result checks what no single file can be blamed for.
func (l *loader) result() (*Config, error) {
	if l.found.Count() == 0 {
		for _, m := range l.config.mismatches() {
			p := Problem{Key: m.keys[0]}
			for _, k := range slices.Backward(m.keys) {
				if at, ok := l.set[k]; ok {
					p = at
				}
			}
			p.What, p.Remedy = m.what, m.remedy
			l.found.add(p)
		}
	}
	if err := l.found.orNil(); err != nil {
		return nil, err
	}
	return l.config, nil
}
