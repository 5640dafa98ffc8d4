// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// spy is a rung's closer that says when it is closed.
type spy struct {
	name   string
	closed *[]string
}

func (s spy) Close() error {
	*s.closed = append(*s.closed, s.name)
	return nil
}

func holds(name string, closed *[]string) Rung {
	return Rung{Name: name, Attach: func() (io.Closer, error) { return spy{name, closed}, nil }}
}

func refuses(name string, err error) Rung {
	return Rung{Name: name, Attach: func() (io.Closer, error) { return nil, err }}
}

// here is what Explain makes of an error that is want to a process with all
// rights: without them the missing right is the cause of whatever was answered.
func here(want error) error {
	if len(MissingCapabilities()) > 0 {
		return ErrCapability
	}
	return want
}

func TestClimb(t *testing.T) {
	var closed []string
	never := Rung{Name: "poor", Attach: func() (io.Closer, error) {
		t.Error("a poorer rung was tried although a better one held")
		return nil, io.EOF
	}}
	h := Climb(Signal{Name: "s", Rungs: []Rung{
		refuses("best", fmt.Errorf("attaching: %w", unix.ENOENT)), holds("good", &closed), never,
	}}, "")
	if !h.Held() || h.Rung != "good" || h.Err() != nil || h.Signal != "s" {
		t.Errorf("held %q, %v", h.Rung, h.Err())
	}
	if len(h.Refused) != 1 || h.Refused[0].Rung != "best" || !errors.Is(h.Refused[0].Err, here(ErrNoHook)) {
		t.Errorf("refused were %+v", h.Refused)
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(closed, []string{"good"}) {
		t.Errorf("closed were %v, want the rung once", closed)
	}
}

func TestClimbOnly(t *testing.T) {
	var closed []string
	s := Signal{Name: "s", Rungs: []Rung{holds("best", &closed), holds("good", &closed)}}
	if h := Climb(s, "good"); h.Rung != "good" || len(h.Refused) != 0 {
		t.Errorf("held %q, refused %+v", h.Rung, h.Refused)
	}
	h := Climb(s, "none such")
	if h.Held() || !errors.Is(h.Err(), ErrNoHook) || !strings.Contains(h.Err().Error(), "none such") {
		t.Errorf("a rung that is not there gave %q, %v", h.Rung, h.Err())
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func TestClimbNothingHolds(t *testing.T) {
	h := Climb(Signal{Name: "arrived", Rungs: []Rung{refuses("a", io.EOF), refuses("b", io.ErrClosedPipe)}}, "")
	err := h.Err()
	if h.Held() || !errors.Is(err, here(io.EOF)) || !errors.Is(err, here(io.ErrClosedPipe)) || !strings.HasPrefix(err.Error(), "attaching arrived: a: ") {
		t.Errorf("the error is %v, want both refusals by name", err)
	}
}

func TestExplain(t *testing.T) {
	if Explain(nil) != nil {
		t.Error("nothing was explained")
	}
	for _, c := range []struct {
		name string
		in   error
		want error
	}{
		{"no such hook", unix.ESRCH, ErrNoHook},
		{"no such program type", ebpf.ErrNotSupported, ErrNoHook},
		{"the verifier", fmt.Errorf("loading: %w", &ebpf.VerifierError{Cause: unix.EINVAL}), ErrRefused},
		{"the verifier, with EACCES", fmt.Errorf("loading: %w", &ebpf.VerifierError{Cause: unix.EACCES}), ErrRefused},
		{"what is explained already", fmt.Errorf("reading: %w", ErrLockdown), ErrLockdown},
		{"something else", io.EOF, io.EOF},
	} {
		want := c.want
		if !errors.Is(c.in, ErrLockdown) {
			want = here(want)
		}
		if got := Explain(c.in); !errors.Is(got, want) {
			if noBTF() && errors.Is(got, ErrNoBTF) {
				continue // that comes first
			}
			t.Errorf("%s: %v became %v, want %v", c.name, c.in, got, want)
		}
	}
	// What EPERM means depends on the rights there are: each answer says what to do.
	got := Explain(unix.EPERM)
	if missing := MissingCapabilities(); len(missing) > 0 {
		if !errors.Is(got, ErrCapability) || !strings.Contains(got.Error(), missing[0]) {
			t.Errorf("without %v EPERM became %v", missing, got)
		}
	} else if !errors.Is(got, ErrLockdown) && !errors.Is(got, ErrCapability) {
		t.Errorf("with all capabilities EPERM became %v", got)
	}
}

func TestClosers(t *testing.T) {
	var closed []string
	failing := closerFunc(func() error { return io.EOF })
	err := Closers{spy{"a", &closed}, failing, spy{"b", &closed}}.Close()
	if !errors.Is(err, io.EOF) || !slices.Equal(closed, []string{"b", "a"}) {
		t.Errorf("closed %v with %v, want b then a, and the error kept", closed, err)
	}
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }
