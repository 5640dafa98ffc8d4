// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed tinymodel.py tinygguf.py llama.py requirements-*.txt
var files embed.FS

// ScratchDir returns the default scratch folder: build/peers below the folder
// that holds go.mod, or a folder of the system's temporary directory where the
// working directory is not inside the repository.
func ScratchDir() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.mod")); statErr == nil {
			return filepath.Join(dir, "build", "peers")
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return filepath.Join(os.TempDir(), "velo-agent-peers")
}

// Config says where a peer is installed and how it runs. The zero value works.
type Config struct {
	Scratch string    // folder for everything that is installed or made; ScratchDir() if empty
	Log     io.Writer // takes one line of progress per step; nil for none

	// Slots is the number of streams that a llama.cpp server decodes at once;
	// 32 if 0.
	Slots int
	// Speedup divides the mocker's simulated times; 1 if 0, which gives about 5
	// to 9 ms a token.
	Speedup float64
}

// scratch is a scratch folder in use.
type scratch struct {
	dir string
	log io.Writer
}

func (c Config) open() (*scratch, error) {
	dir := c.Scratch
	if dir == "" {
		dir = ScratchDir()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the scratch folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the scratch folder: %w", err)
	}
	log := c.Log
	if log == nil {
		log = io.Discard
	}
	return &scratch{dir: dir, log: log}, nil
}

func (s *scratch) path(name ...string) string {
	return filepath.Join(append([]string{s.dir}, name...)...)
}

func (s *scratch) python() string { return s.path("venv", "bin", "python") }

func (s *scratch) say(format string, args ...any) {
	fmt.Fprintf(s.log, "peers: "+format+"\n", args...)
}

// locked runs f while no other process (nor another test of this one) changes
// the scratch folder. It waits for the lock until ctx ends.
func (s *scratch) locked(ctx context.Context, f func() error) error {
	lock, err := os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("opening the scratch folder's lock: %w", err)
	}
	defer lock.Close()
	for waited := false; ; waited = true {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f()
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return fmt.Errorf("locking the scratch folder: %w", err)
		}
		if !waited {
			s.say("waiting for another installation in %s", s.dir)
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the scratch folder's lock: %w", err)
		}
	}
}

// install makes the virtual environment and installs the named requirement
// sets, unless they are there already. The caller holds the lock.
func (s *scratch) install(ctx context.Context, sets ...string) error {
	if _, err := os.Stat(s.python()); err != nil {
		host, err := exec.LookPath("python3")
		if err != nil {
			return unavailable("python3 is not in PATH")
		}
		s.say("making a Python environment in %s", s.path("venv"))
		if out, err := command(ctx, host, "-m", "venv", "--clear", s.path("venv")); err != nil {
			return s.refused(ctx, "making the Python environment", out, err)
		}
	}
	for _, set := range sets {
		if err := s.installSet(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

func (s *scratch) installSet(ctx context.Context, set string) error {
	list, err := files.ReadFile("requirements-" + set + ".txt")
	if err != nil {
		return fmt.Errorf("reading the list of packages: %w", err)
	}
	stamp := s.path("venv", fmt.Sprintf("installed-%s-%x", set, sha256.Sum256(list)))
	if _, err := os.Stat(stamp); err == nil {
		return nil
	}
	names := strings.Fields(strings.SplitN(string(list), "\n", 2)[1])
	s.say("installing %s", strings.Join(names, " "))
	start := time.Now()
	// Every dependency is in the list: --no-deps keeps the versions pinned and
	// leaves out what only downloading models would need.
	args := append([]string{"-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--no-deps"}, names...)
	if out, err := command(ctx, s.python(), args...); err != nil {
		return s.refused(ctx, "installing the packages of "+set, out, err)
	}
	s.say("installed %s in %.0f s", set, time.Since(start).Seconds())
	return os.WriteFile(stamp, nil, 0o644)
}

// refused turns the failure of an installer into ErrUnavailable with the last
// line that it printed, or into ctx's error where that ended it.
func (s *scratch) refused(ctx context.Context, doing string, out []byte, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return unavailable("%s: %w: %s", doing, err, lines[len(lines)-1])
}

// script writes an embedded file into the scratch folder and returns its path.
func (s *scratch) script(name string) (string, error) {
	content, err := files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading the script %s: %w", name, err)
	}
	path := s.path(name)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return path, nil
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return "", fmt.Errorf("writing the script %s: %w", name, err)
	}
	return path, nil
}

func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd.CombinedOutput()
}

// sleep waits for d or until ctx ends; it returns ctx's error in that case.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
