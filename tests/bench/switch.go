// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// linkSwitch attaches and detaches programs that are loaded, in milliseconds:
// opening the agent takes half a second, in which a noisy machine changes.
type linkSwitch struct {
	programs []*ebpf.Program
	links    ladder.Closers
}

// takeLinks takes over what this process is attached to and detaches it. Whoever
// holds the links keeps descriptors that lead to /dev/null, and may close them.
func takeLinks() (*linkSwitch, error) {
	links, err := ownLinks()
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	s := &linkSwitch{}
	for _, l := range links {
		p, err := ebpf.NewProgramFromID(l.program)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("taking the program at %s: %w", l.hook.Name, err), s.close())
		}
		s.programs = append(s.programs, p)
		if err := unix.Dup3(int(null.Fd()), l.fd, unix.O_CLOEXEC); err != nil {
			return nil, errors.Join(fmt.Errorf("taking the link at %s: %w", l.hook.Name, err), s.close())
		}
	}
	return s, nil
}

// set attaches all programs, or detaches all.
func (s *linkSwitch) set(on bool) error {
	err := s.links.Close()
	s.links = nil
	if !on {
		return err
	}
	for _, p := range s.programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return errors.Join(fmt.Errorf("attaching %v again: %w", p, err), s.set(false))
		}
		s.links = append(s.links, l)
	}
	return err
}

func (s *linkSwitch) close() error {
	errs := []error{s.set(false)}
	for _, p := range s.programs {
		errs = append(errs, p.Close())
	}
	s.programs = nil
	return errors.Join(errs...)
}
