// SPDX-License-Identifier: Apache-2.0

// Package ladder finds the best way of obtaining a signal by trying: each rung
// loads and attaches its programs, and the first that holds is the one in use.
// No kernel version is ever compared.
package ladder

import (
	"errors"
	"fmt"
	"io"
)

// Rung is one way of obtaining a signal.
type Rung struct {
	Name   string // as the report spells it, e.g. "tp_btf/sk_data_ready"
	Attach func() (io.Closer, error)
}

// Signal is what is wanted, with its rungs from best to poorest.
type Signal struct {
	Name  string
	Rungs []Rung
}

// Refusal is a rung that did not hold, and why.
type Refusal struct {
	Rung string
	Err  error
}

// Hold is the outcome of a climb. Rung is empty where none held.
type Hold struct {
	Signal  string
	Rung    string
	Refused []Refusal

	closer io.Closer
}

// Held reports whether some rung is in use.
func (h *Hold) Held() bool { return h.Rung != "" }

// Err joins what every refused rung answered, or is nil while one is in use.
func (h *Hold) Err() error {
	if h.Held() {
		return nil
	}
	errs := make([]error, 0, len(h.Refused))
	for _, r := range h.Refused {
		errs = append(errs, fmt.Errorf("%s: %w", r.Rung, r.Err))
	}
	return fmt.Errorf("attaching %s: %w", h.Signal, errors.Join(errs...))
}

// Close detaches the rung. It may be called more than once.
func (h *Hold) Close() error {
	if h.closer == nil {
		return nil
	}
	c := h.closer
	h.closer = nil
	return c.Close()
}

// Climb tries the rungs of s in order. A rung named in only is the one tried;
// an only that s does not have is an error in the refusals.
func Climb(s Signal, only string) *Hold {
	h := &Hold{Signal: s.Name}
	known := only == ""
	for _, r := range s.Rungs {
		if only != "" && r.Name != only {
			continue
		}
		known = true
		c, err := r.Attach()
		if err == nil {
			h.Rung, h.closer = r.Name, c
			return h
		}
		h.Refused = append(h.Refused, Refusal{Rung: r.Name, Err: Explain(err)})
	}
	if !known {
		h.Refused = append(h.Refused, Refusal{Rung: only, Err: fmt.Errorf("%w: %s has no rung of this name", ErrNoHook, s.Name)})
	}
	return h
}

// Closers closes several things as one, in reverse order.
type Closers []io.Closer

// Close closes all and joins the errors.
func (cs Closers) Close() error {
	var errs []error
	for i := len(cs) - 1; i >= 0; i-- {
		errs = append(errs, cs[i].Close())
	}
	return errors.Join(errs...)
}
