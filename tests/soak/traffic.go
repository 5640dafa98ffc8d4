// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/peers"
)

const (
	clients  = 4 // of each engine
	reuse    = 5 // exchanges on one connection
	newFor   = 4 * time.Second
	patience = 10 * time.Second
)

// tally is what the clients of an engine have seen.
type tally struct {
	whole  int // exchanges that came to their end
	early  int // of those, on connections to a listener that was younger than newFor
	cut    int // that an engine's end cut off, at whatever point
	broken int // that failed for another reason
	why    error
}

// ask makes one exchange after the other until ctx ends. An exchange under way then is
// not given up: it ends, or is cut off by the engine.
func (e *engine) ask(ctx context.Context, listening time.Time) {
	for ctx.Err() == nil {
		conn, err := peers.NewConn(fmt.Sprintf("http://127.0.0.1:%d", e.port))
		if err != nil {
			e.failed(err)
			return
		}
		early := time.Since(listening) < newFor
		for range reuse {
			_, err := conn.Stream(context.WithoutCancel(ctx), "soak", peers.Options{Tokens: tokens, Timeout: patience})
			e.took(ctx, err, early)
			if err != nil || ctx.Err() != nil {
				break
			}
		}
		conn.Close()
	}
}

func (e *engine) failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken++
	e.why = err
}

// took counts an exchange. The engine is dead a moment before ctx says so.
func (e *engine) took(ctx context.Context, err error, early bool) {
	switch {
	case errors.Is(err, unix.ECONNREFUSED): // it never reached the engine
		sleep(ctx, lookBetween/4)
		return
	case errors.Is(err, context.DeadlineExceeded):
		e.failed(err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil:
		e.cut++
	case early:
		e.early++
		fallthrough
	default:
		e.whole++
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
