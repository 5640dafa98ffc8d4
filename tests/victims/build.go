// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// root returns the repository's root: the folder of go.mod above the working one.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working folder")
		}
		dir = up
	}
}

// inBuild runs f with the repository's root and the folder build/victims, alone
// among all processes: two tests may want to build the same program.
func inBuild(f func(root, dir string) error) error {
	top, err := root()
	if err != nil {
		return fmt.Errorf("finding the repository: %w", err)
	}
	dir := filepath.Join(top, "build", "victims")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking build/victims: %w", err)
	}
	return f(top, dir)
}

// buildC compiles a C program of c/ unless it is newer than its sources.
func buildC(ctx context.Context, name string, sources ...string) (command []string, err error) {
	err = inBuild(func(top, dir string) error {
		out := filepath.Join(dir, name)
		command = []string{out}
		paths := []string{filepath.Join(top, "tests", "victims", "c", "victim.h")}
		for _, s := range sources {
			paths = append(paths, filepath.Join(top, "tests", "victims", "c", s))
		}
		if newer(out, paths...) {
			return nil
		}
		args := []string{"-O2", "-g", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-pthread", "-o", out}
		return runTool(ctx, top, "cc", append(args, paths[1:]...)...)
	})
	return command, err
}

func newer(out string, sources ...string) bool {
	built, err := os.Stat(out)
	if err != nil {
		return false
	}
	for _, s := range sources {
		if info, err := os.Stat(s); err != nil || !info.ModTime().Before(built.ModTime()) {
			return false
		}
	}
	return true
}

func buildGo(ctx context.Context) (command []string, err error) {
	err = inBuild(func(top, dir string) error {
		out := filepath.Join(dir, "gosrv")
		command = []string{out}
		return runTool(ctx, top, "go", "build", "-o", out, "./tests/victims/gosrv")
	})
	return command, err
}

// uvicorn remembers for the life of the process that it cannot be installed.
var uvicorn struct {
	once sync.Once
	err  error
}

// python returns the command of the uvicorn victim; it makes the environment
// build/venv and installs uvicorn in it where that is missing.
func python(ctx context.Context) (command []string, err error) {
	err = inBuild(func(top, _ string) error {
		venv := filepath.Join(top, "build", "venv")
		exe := filepath.Join(venv, "bin", "python")
		command = []string{exe, filepath.Join(top, "tests", "victims", "py", "victim.py")}
		uvicorn.once.Do(func() {
			if exec.CommandContext(ctx, exe, "-c", "import uvicorn").Run() == nil {
				return
			}
			if uvicorn.err = runTool(ctx, top, "python3", "-m", "venv", venv); uvicorn.err == nil {
				uvicorn.err = runTool(ctx, top, exe, "-m", "pip", "install", "--quiet",
					"--timeout", "20", "--retries", "2", "uvicorn==0.54.0")
			}
		})
		return uvicorn.err
	})
	return command, err
}

// nginxPath returns the path of nginx, installing Debian's where it is missing.
func nginxPath(ctx context.Context) (path string, err error) {
	const usual = "/usr/sbin/nginx" // not in everybody's PATH
	find := func() bool {
		if path, err = exec.LookPath("nginx"); err == nil {
			return true
		}
		path, err = exec.LookPath(usual)
		return err == nil
	}
	if find() {
		return path, nil
	}
	err = inBuild(func(top, _ string) error {
		if find() {
			return nil
		}
		if err := runTool(ctx, top, "apt-get", "install", "-y", "-q", "nginx-light"); err != nil {
			return err
		}
		if !find() {
			return err
		}
		return nil
	})
	return path, err
}

func runTool(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w: %s", name, err, out)
	}
	return nil
}
