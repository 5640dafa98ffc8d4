// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is one kernel module, ready to load.
type module struct {
	name  string
	image []byte
}

// resolve returns the named modules with those that they need, in the order of
// loading. The packages hold no modules.dep (depmod writes it at installation),
// so each module's own "depends" is read. One that is built in is left out.
func (k Kernel) resolve(ctx context.Context, names []string) ([]module, error) {
	if len(names) == 0 {
		return nil, nil
	}
	files := map[string]string{}
	err := filepath.WalkDir(k.Modules, func(path string, _ fs.DirEntry, err error) error {
		base, _, ok := strings.Cut(filepath.Base(path), ".ko")
		if ok {
			files[canonical(base)] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the modules of %s: %w", k.Release, err)
	}
	builtin, err := os.ReadFile(filepath.Join(k.Modules, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("reading the built-in modules of %s: %w", k.Release, err)
	}
	var out []module
	seen := map[string]bool{}
	var visit func(string) error
	visit = func(name string) error {
		name = canonical(name)
		if seen[name] {
			return nil
		}
		seen[name] = true
		path, ok := files[name]
		if !ok {
			if bytes.Contains([]byte(canonical(string(builtin))), []byte("/"+name+".ko")) {
				return nil
			}
			return fmt.Errorf("%s has no module %s", k.Release, name)
		}
		image, needs, err := readModule(ctx, path)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return err
			}
		}
		out = append(out, module{name, image})
		return nil
	}
	for _, n := range names {
		if err := visit(n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// canonical is the kernel's spelling of a module's name.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// readModule returns a module's image, unpacked, and the names of those it needs.
func readModule(ctx context.Context, path string) ([]byte, []string, error) {
	image, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".xz") {
		image, err = exec.CommandContext(ctx, "xz", "-dc", path).Output()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the module %s: %w", path, err)
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the module %s: %w", path, err)
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, nil, fmt.Errorf("reading the module %s: it has no .modinfo", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the module %s: %w", path, err)
	}
	for _, field := range strings.Split(string(info), "\x00") {
		if v, ok := strings.CutPrefix(field, "depends="); ok && v != "" {
			return image, strings.Split(v, ","), nil
		}
	}
	return image, nil, nil
}
