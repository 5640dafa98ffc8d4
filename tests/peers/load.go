// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Shape describes a load: a number of clients, each with one stream at a time.
type Shape struct {
	Clients   int           // streams at once
	Exchanges int           // of each client; 0 means until the context ends
	Reuse     int           // exchanges on one connection before a new one is dialled; 1 if 0
	Pause     time.Duration // of a client between two exchanges
	Stagger   time.Duration // between the starts of successive clients
	Options   Options       // of each request

	ReceiveBuffer int // asked for on each socket, in bytes; the system's default if 0
}

// Load runs n streams at once, one exchange each with keepalive false, or two
// one after the other on the same connection with keepalive true, and returns
// all timings. See Shape.Run for the errors.
func Load(ctx context.Context, address, model string, n, tokens int, keepalive bool) ([]Timing, error) {
	shape := Shape{Clients: n, Exchanges: 1, Options: Options{Tokens: tokens}}
	if keepalive {
		shape.Exchanges, shape.Reuse = 2, 2
	}
	return shape.Run(ctx, address, model)
}

// Run puts the load on a server and returns the timings of all exchanges that
// went well, in no order, with the errors of the others joined. The end of ctx
// ends the load; exchanges that it cuts off are neither timings nor errors.
func (s Shape) Run(ctx context.Context, address, model string) ([]Timing, error) {
	var (
		mu      sync.Mutex
		timings []Timing
		errs    []error
		group   sync.WaitGroup
	)
	for i := range s.Clients {
		group.Go(func() {
			if sleep(ctx, time.Duration(i)*s.Stagger) != nil {
				return
			}
			err := s.client(ctx, address, model, func(t Timing) {
				mu.Lock()
				defer mu.Unlock()
				timings = append(timings, t)
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	return timings, errors.Join(errs...)
}

// client runs one client until its exchanges are done, one fails, or ctx ends.
func (s Shape) client(ctx context.Context, address, model string, keep func(Timing)) error {
	conn, err := NewConn(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if s.ReceiveBuffer > 0 {
		conn.SetReceiveBuffer(s.ReceiveBuffer)
	}
	for n := 1; s.Exchanges == 0 || n <= s.Exchanges; n++ {
		timing, err := conn.Stream(ctx, model, s.Options)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		keep(timing)
		if n%max(s.Reuse, 1) == 0 {
			conn.Close()
		}
		if n != s.Exchanges && s.Pause > 0 && sleep(ctx, s.Pause) != nil {
			return nil
		}
	}
	return nil
}
