// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/tests/rig/carrier"
	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// local is one node by itself.
type local struct {
	spec *carrier.Spec
	node *plane.Node
	kept []*plane.Anchor
}

func newLocal(spec *carrier.Spec) (*local, error) {
	n, err := plane.New(plane.Options{
		Listen: []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}, NoTCPStream: true, Metrics: prometheus.NewRegistry(),
	})
	return &local{spec: spec, node: n}, err
}

func (l *local) address() any { return nil }

func (l *local) carriedBy() any { return nil }

func (l *local) connect(json.RawMessage) error {
	return errors.New("a node by itself has nobody to connect to")
}

func (l *local) do(cmd string, a *Answer) error {
	switch cmd {
	case "mark":
		return nil
	case "rest":
	case "unattached", "prebound":
		if err := l.anchors(cmd == "prebound"); err != nil {
			return err
		}
	case "cycles":
		return l.cycles(a)
	default:
		return fmt.Errorf("no command of a node by itself: %q", cmd)
	}
	debug.FreeOSMemory()
	a.Tasks = runtime.NumGoroutine()
	return nil
}

// anchors makes anchors and keeps them.
func (l *local) anchors(prebound bool) error {
	l.kept = make([]*plane.Anchor, 0, l.spec.Streams) // not before: life cycles would have it scanned
	for range l.spec.Streams {
		a, err := l.node.NewAnchor(plane.AnchorOptions{})
		if err != nil {
			return err
		}
		if prebound {
			if _, err := a.Ticket(0); err != nil {
				return err
			}
		}
		l.kept = append(l.kept, a)
	}
	return nil
}

// cycles lets streams live and end, one at a time in each goroutine.
func (l *local) cycles(a *Answer) error {
	took := make([]load.Histogram, l.spec.Tasks)
	failed := make(chan error, l.spec.Tasks)
	a.BegunNS = load.Now()
	for i := range took {
		go func() { failed <- l.run(l.spec.Streams/l.spec.Tasks, &took[i]) }()
	}
	for range took {
		if err := <-failed; err != nil {
			return err
		}
	}
	a.EndedNS = load.Now()
	var all load.Histogram
	for i := range took {
		all.Merge(&took[i])
	}
	q := all.Quantiles()
	a.Latency = &q
	return nil
}

func (l *local) run(cycles int, took *load.Histogram) error {
	ctx := context.Background()
	record := make([]byte, l.spec.Size)
	for n := range uint64(cycles) {
		begun := load.Now()
		a, err := l.node.NewAnchor(plane.AnchorOptions{})
		if err != nil {
			return err
		}
		s, err := l.node.Attach(ctx, a.Handle())
		if err != nil {
			return err
		}
		load.Fill(record, n, 0, false)
		if err := errors.Join(s.Send(ctx, record), s.Finalize()); err != nil {
			return fmt.Errorf("cycle %d: %w", n, err)
		}
		got, err := a.Recv(ctx)
		if err == nil {
			err = load.Check(got, l.spec.Size, n, 0)
		}
		if err != nil {
			return fmt.Errorf("cycle %d: %w", n, err)
		}
		if _, err := a.Recv(ctx); !errors.Is(err, io.EOF) {
			return fmt.Errorf("the end of cycle %d: %w", n, err)
		}
		took.Add(load.Now() - begun)
	}
	return nil
}
