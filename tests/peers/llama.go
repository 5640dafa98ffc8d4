// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// startLimit bounds the time from the start of a peer's processes until it
// answers; installing is not in it.
const startLimit = 60 * time.Second

// Engine is a running llama.cpp server. It decodes on one thread.
type Engine struct {
	Port  int    // of its HTTP server on 127.0.0.1
	PID   int    // of the process that owns the port (its name is "python")
	Model string // the name to ask for
	URL   string // http://127.0.0.1:Port

	process *process
	runDir  string
}

// StartLlama installs llama.cpp's HTTP server if necessary, makes the tiny model
// and serves it. It returns when the server answers. The error wraps
// ErrUnavailable where the server cannot be installed. ctx bounds the start
// only; Stop ends the engine.
func StartLlama(ctx context.Context, config Config) (*Engine, error) {
	s, err := config.open()
	if err != nil {
		return nil, err
	}
	var model, script string
	err = s.locked(ctx, func() error {
		if err := s.install(ctx, "model", "llama"); err != nil {
			return err
		}
		dir, err := s.modelDir(ctx)
		if err != nil {
			return err
		}
		if model, err = s.modelGGUF(ctx, dir); err != nil {
			return err
		}
		script, err = s.script("llama.py")
		return err
	})
	if err != nil {
		return nil, err
	}
	slots := config.Slots
	if slots == 0 {
		slots = 32
	}
	runDir, err := os.MkdirTemp(s.dir, "run-llama-")
	if err != nil {
		return nil, fmt.Errorf("making the engine's folder: %w", err)
	}
	e := &Engine{Model: TinyName, runDir: runDir}
	e.process, err = startProcess("llama.cpp's server", filepath.Join(runDir, "server"), nil,
		[]string{s.python(), script, model, TinyName, "0", strconv.Itoa(slots)})
	if err != nil {
		os.RemoveAll(runDir)
		return nil, err
	}
	e.PID = e.process.pid
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := e.await(ctx); err != nil {
		err = fmt.Errorf("waiting for llama.cpp's server: %w: %s", err, e.process.tail())
		return nil, errors.Join(err, e.Stop())
	}
	s.say("llama.cpp's server answers on port %d (pid %d, %d slots)", e.Port, e.PID, slots)
	return e, nil
}

// await learns the port from the server's output, then asks until it is healthy.
func (e *Engine) await(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		if err := e.process.exited(); err != nil {
			return false, err
		}
		if e.Port == 0 {
			e.URL, e.Port = listening(e.process.out)
		}
		return e.Port != 0 && get(ctx, e.URL+"/health", ""), nil
	})
}

// listening reads the server's address from the line that it printed; the port
// is 0 while that line is not complete.
func listening(path string) (string, int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", 0
	}
	line, _, complete := strings.Cut(string(text), "\n")
	u, err := url.Parse(line)
	if err != nil || !complete {
		return "", 0
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return "", 0
	}
	return line, port
}

// Stop ends the server and removes its files. A second call does nothing.
func (e *Engine) Stop() error {
	err := e.process.stop()
	os.RemoveAll(e.runDir)
	return err
}
