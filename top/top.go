// SPDX-License-Identifier: Apache-2.0

// Package top is the live view: the watched ports, the stages of one of them, and
// the worst exchanges, drawn anew for each window on a terminal of 80 columns or
// more.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/top/quiet"
)

func init() { quiet.Restore() }

// The bounds of Options.Interval. Within half a second a slow exchange does not end,
// so shorter windows show noise.
const (
	Shortest = 500 * time.Millisecond
	Longest  = time.Minute
)

const (
	usualInterval = 2 * time.Second
	usualTimeout  = 10 * time.Second
	usualWidth    = 80
	usualHeight   = 24
	// Over a slow line fewer frames are better than frames that queue.
	framesPerSecond = 20
)

// Source gives cumulative readings; two of them make a window
// (diagnosis.Measured.Since). Measure is never called twice at once and must return
// soon after ctx ends.
type Source interface {
	Measure(ctx context.Context) (*diagnosis.Measured, error)
}

// Options say how the view is drawn. The zero value is a view of 2 s windows on the
// process's own terminal, in Unicode without colours.
type Options struct {
	Interval    time.Duration // between two readings; 0 is 2 s
	Timeout     time.Duration // of one reading; 0 is 10 s
	In          io.Reader     // keys; nil is the process's terminal
	Out         io.Writer     // nil is standard output
	Color       bool          // the terminal's own 16 colours
	ASCII       bool          // nothing but ASCII
	NoAltScreen bool          // leave the last view on the screen
	Width       int           // columns until the terminal says how many it has; 0 is 80
}

func (o Options) withDefaults() Options {
	if o.Interval == 0 {
		o.Interval = usualInterval
	}
	if o.Timeout == 0 {
		o.Timeout = usualTimeout
	}
	if o.Width == 0 {
		o.Width = usualWidth
	}
	return o
}

// Run shows the view until the user quits or ctx ends; neither is an error. An error
// of the source is shown and the source asked again; only a terminal that cannot be
// drawn on ends Run. When it returns no reading is under way.
func Run(ctx context.Context, s Source, o Options) error {
	o = o.withDefaults()
	work := newJobs(ctx)
	defer work.close()
	opts := []tea.ProgramOption{tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond)}
	if o.In != nil {
		opts = append(opts, tea.WithInput(o.In))
	}
	if o.Out != nil {
		opts = append(opts, tea.WithOutput(o.Out))
	}
	if !o.NoAltScreen {
		opts = append(opts, tea.WithAltScreen())
	}
	p := tea.NewProgram(newModel(s, o, work), opts...)
	stop := context.AfterFunc(ctx, p.Quit)
	defer stop()
	if _, err := p.Run(); err != nil {
		return fmt.Errorf("drawing on the terminal: %w; `velo-agent top --once` needs none", err)
	}
	return nil
}

// Once returns the report of one window of o.Interval.
func Once(ctx context.Context, s Source, o Options) (*diagnosis.Report, error) {
	o = o.withDefaults()
	earlier, err := measure(ctx, s, o.Timeout)
	if err != nil {
		return nil, err
	}
	end := time.NewTimer(o.Interval)
	defer end.Stop()
	select {
	case <-end.C:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the end of the window: %w", ctx.Err())
	}
	m, err := measure(ctx, s, o.Timeout)
	if err != nil {
		return nil, err
	}
	return diagnosis.Build(m.Since(earlier)), nil
}

// measure takes one reading and says what to do where there is none in time.
func measure(ctx context.Context, s Source, timeout time.Duration) (*diagnosis.Measured, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m, err := s.Measure(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no reading within %v: %w; is the node out of CPU, or the agent stopped? `velo-agent probes` tries each signal", timeout, err)
	case err != nil:
		return nil, fmt.Errorf("measuring: %w", err)
	case m == nil:
		return nil, errors.New("measuring: the source gave no reading and no reason")
	}
	return m, nil
}
