// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"sync"

	tea "github.com/charmbracelet/bubbletea"
)

// jobs are the commands that run beside the event loop. Bubble Tea does not wait for
// them when it ends, and may even start one afterwards; close does.
type jobs struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // Add of running against close
	wg     sync.WaitGroup
}

func newJobs(ctx context.Context) *jobs {
	j := &jobs{}
	j.ctx, j.cancel = context.WithCancel(ctx)
	return j
}

// cmd makes a command of f, which must return soon after its context ends.
func (j *jobs) cmd(f func(context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		if !j.enter() {
			return nil
		}
		defer j.wg.Done()
		return f(j.ctx)
	}
}

func (j *jobs) enter() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ctx.Err() != nil {
		return false
	}
	j.wg.Add(1)
	return true
}

// close ends the commands that run and waits for them; none begins afterwards.
func (j *jobs) close() {
	j.mu.Lock()
	j.cancel()
	j.mu.Unlock()
	j.wg.Wait()
}
