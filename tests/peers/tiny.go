// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// TinyName is the name under which every peer serves the tiny model.
const TinyName = "tiny"

// Tiny is a model with random weights: 2 layers, width 128, a vocabulary of at
// most 4096, a context of 4096 tokens.
type Tiny struct {
	Dir  string // folder with tokenizer, chat template and configuration (0.3 MB)
	GGUF string // the same with weights, for llama.cpp (5.5 MB)
}

// TinyModel makes the tiny model in dir/tiny and dir/tiny.gguf, unless it is
// there already; the Python packages go to dir too. An empty dir means
// ScratchDir(). The error wraps ErrUnavailable where Python or a package is
// missing.
func TinyModel(ctx context.Context, dir string) (Tiny, error) {
	s, err := Config{Scratch: dir}.open()
	if err != nil {
		return Tiny{}, err
	}
	var tiny Tiny
	err = s.locked(ctx, func() error {
		if err := s.install(ctx, "model", "llama"); err != nil {
			return err
		}
		if tiny.Dir, err = s.modelDir(ctx); err != nil {
			return err
		}
		tiny.GGUF, err = s.modelGGUF(ctx, tiny.Dir)
		return err
	})
	return tiny, err
}

// modelDir makes the model's folder. The caller holds the lock and has
// installed the set "model".
func (s *scratch) modelDir(ctx context.Context) (string, error) {
	dir := s.path(TinyName)
	return dir, s.make(ctx, dir, "tinymodel.py", dir)
}

// modelGGUF makes the GGUF file. The caller holds the lock and has installed
// the set "llama".
func (s *scratch) modelGGUF(ctx context.Context, dir string) (string, error) {
	file := s.path(TinyName + ".gguf")
	return file, s.make(ctx, file, "tinygguf.py", dir, file)
}

func (s *scratch) make(ctx context.Context, product, script string, args ...string) error {
	if _, err := os.Stat(product); err == nil {
		return nil
	}
	path, err := s.script(script)
	if err != nil {
		return err
	}
	s.say("making %s", filepath.Base(product))
	out, err := command(ctx, s.python(), append([]string{path}, args...)...)
	if err != nil {
		return fmt.Errorf("making %s: %w: %s", filepath.Base(product), err, out)
	}
	return nil
}
