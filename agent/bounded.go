// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// mostConnections is how many connections one of the daemon's servers holds.
const mostConnections = 256

// bounded keeps a server's connections few: beyond the bound the one that has waited
// longest without a request under way is closed. Idle and slow clients make room for
// those that ask.
type bounded struct {
	mu    sync.Mutex
	conns map[net.Conn]*connection
}

type connection struct {
	since   time.Time // it has no request
	serving int
}

// connKey is where a request's context has its connection.
type connKey struct{}

// bound sets the limits of a server that hostile clients may reach.
func bound(srv *http.Server) {
	b := &bounded{conns: map[net.Conn]*connection{}}
	next := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		b.serving(conn, 1)
		defer b.serving(conn, -1)
		next.ServeHTTP(w, r)
	})
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	srv.ConnState = b.changed
	srv.ReadHeaderTimeout = 5 * time.Second
	srv.ReadTimeout = 10 * time.Second
	srv.WriteTimeout = time.Minute
	srv.IdleTimeout = time.Minute
	srv.MaxHeaderBytes = 16 << 10
}

func (b *bounded) changed(c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state {
	case http.StateNew:
		b.conns[c] = &connection{since: time.Now()}
		if len(b.conns) > mostConnections {
			b.closeOldest()
		}
	case http.StateIdle:
		if x := b.conns[c]; x != nil {
			x.since = time.Now()
		}
	case http.StateClosed, http.StateHijacked:
		delete(b.conns, c)
	}
}

func (b *bounded) serving(c net.Conn, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.conns[c]; x != nil {
		x.serving += n
	}
}

// closeOldest closes the one that has waited longest. The lock is held.
func (b *bounded) closeOldest() {
	var oldest net.Conn
	for c, x := range b.conns {
		if x.serving == 0 && (oldest == nil || x.since.Before(b.conns[oldest].since)) {
			oldest = c
		}
	}
	if oldest != nil {
		delete(b.conns, oldest)
		oldest.Close()
	}
}
