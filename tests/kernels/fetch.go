// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Series are the kernels that the agent must also work on: Debian 12's and
// Debian 13's.
var Series = []string{"6.1", "6.12"}

// Kernel is one kernel in the cache.
type Kernel struct {
	Series  string // "6.1"
	Release string // what uname says, "6.1.0-57-cloud-amd64"
	Image   string // path of its vmlinuz
	Modules string // path of its lib/modules/<release>
}

// Cached returns the kernel of a series that dir holds, and whether it does.
func Cached(dir, series string) (Kernel, bool) {
	images, err := filepath.Glob(filepath.Join(dir, series, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return Kernel{}, false
	}
	rel := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	for _, lib := range []string{"lib", "usr/lib"} {
		mods := filepath.Join(dir, series, lib, "modules", rel)
		if _, err := os.Stat(mods); err == nil {
			return Kernel{Series: series, Release: rel, Image: images[0], Modules: mods}, true
		}
	}
	return Kernel{}, false
}

// Fetch returns a kernel of each of Series, in that order, taking those that dir
// does not hold from the package manager, the newest first. It installs the
// emulator where it is missing. Nothing is installed but that: a kernel's package
// is only unpacked below dir.
func Fetch(ctx context.Context, dir string) ([]Kernel, error) {
	if err := haveEmulator(ctx); err != nil {
		return nil, err
	}
	var out []Kernel
	for _, s := range Series {
		k, ok := Cached(dir, s)
		if !ok {
			if err := fetch(ctx, dir, s); err != nil {
				return nil, fmt.Errorf("fetching a kernel %s: %w", s, err)
			}
			if k, ok = Cached(dir, s); !ok {
				return nil, fmt.Errorf("fetching a kernel %s: the package holds no image with modules", s)
			}
		}
		out = append(out, k)
	}
	return out, nil
}

func haveEmulator(ctx context.Context) error {
	if _, err := exec.LookPath(emulator); err == nil {
		return nil
	}
	if _, err := packager(ctx, "", "apt-get", "install", "-y", "--no-install-recommends", "qemu-system-x86"); err != nil {
		return fmt.Errorf("%w: %w", ErrNoQemu, err)
	}
	return nil
}

// fetch downloads and unpacks the newest kernel of a series into dir/series,
// which appears only once it is whole.
func fetch(ctx context.Context, dir, series string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := download(ctx, tmp, series); err != nil {
		// The list of packages may be older than the archive.
		if _, uerr := packager(ctx, "", "apt-get", "update"); uerr != nil {
			return fmt.Errorf("%w; refreshing the list of packages: %w", err, uerr)
		}
		if err := download(ctx, tmp, series); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("expected one package, found %d", len(debs))
	}
	root := filepath.Join(tmp, "root")
	if _, err := packager(ctx, "", "dpkg-deb", "-x", debs[0], root); err != nil {
		return err
	}
	final := filepath.Join(dir, series)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(root, final)
}

func download(ctx context.Context, dir, series string) error {
	list, err := packager(ctx, "", "apt-cache", "pkgnames", "linux-image-"+series+".")
	if err != nil {
		return err
	}
	name := newest(strings.Fields(list), series)
	if name == "" {
		return fmt.Errorf("the package manager offers no linux-image-%s.*-cloud-amd64", series)
	}
	_, err = packager(ctx, dir, "apt-get", "download", "-o", "APT::Sandbox::User=root", name)
	return err
}

// numbers are what orders one release of a series after another.
var numbers = regexp.MustCompile(`[0-9]+`)

// newest picks the signed image of the highest version among package names, or "".
func newest(names []string, series string) string {
	best, bestKey := "", []int(nil)
	for _, n := range names {
		rel, isSeries := strings.CutPrefix(n, "linux-image-"+series+".")
		rel, isCloud := strings.CutSuffix(rel, "-cloud-amd64")
		if !isSeries || !isCloud {
			continue
		}
		var key []int
		for _, d := range numbers.FindAllString(rel, -1) {
			v, _ := strconv.Atoi(d)
			key = append(key, v)
		}
		if best == "" || slices.Compare(key, bestKey) > 0 {
			best, bestKey = n, key
		}
	}
	return best
}

// packager runs one command of the package manager in dir and returns what it printed.
func packager(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(msg.Bytes()))
	}
	return out.String(), nil
}
