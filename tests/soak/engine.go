// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

const (
	enginePart  = "engine"
	tokens      = 16
	meanGap     = 5 * time.Millisecond
	shortest    = 6 * time.Second // an engine's life
	longest     = 12 * time.Second
	down        = 2500 * time.Millisecond // as a real one takes to load
	lookBetween = 400 * time.Millisecond
)

// answer is the engine's own part: "listen PORT" begins to serve.
func answer(words []string) (string, error) {
	if len(words) != 2 || words[0] != "listen" {
		return "", fmt.Errorf("asked for %q", words)
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:"+words[1])
	if err != nil {
		return "", err
	}
	go http.Serve(l, http.HandlerFunc(stream))
	return "ok", nil
}

// stream answers with tokens as server-sent events.
func stream(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for range tokens {
		time.Sleep(time.Duration(rand.ExpFloat64() * float64(meanGap)))
		fmt.Fprint(w, "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"token \"}}]}\n\n")
		if out.Flush() != nil {
			return
		}
	}
	io.WriteString(w, "data: [DONE]\n\n")
}

// engine is a port, the process that serves it at present, and its clients.
type engine struct {
	port  int
	lives int

	mu sync.Mutex
	tally
}

func newEngine(n int) *engine { return &engine{port: 16_000 + os.Getpid()%1000*2 + n} }

// live starts and kills the engine until ctx ends. While it is down the daemon's page
// is looked at so often that the last figures before they are forgotten are seen.
func (e *engine) live(ctx context.Context, c *count) error {
	for ctx.Err() == nil {
		e.lives++
		if err := e.once(ctx); err != nil {
			return err
		}
		for up := time.Now().Add(down); time.Now().Before(up); {
			if err := c.look(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			time.Sleep(lookBetween)
		}
	}
	return nil
}

// once is one life: under traffic until it is killed, or until ctx ends, which lets
// what is under way come to its end.
func (e *engine) once(ctx context.Context) error {
	child, err := live.StartChild(false, enginePart)
	if err != nil {
		return err
	}
	defer child.Stop()
	if _, err := child.Ask("listen", strconv.Itoa(e.port)); err != nil {
		return err
	}
	begun := time.Now()
	life, end := context.WithCancel(ctx)
	defer end()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() { e.ask(life, begun) })
	}
	select {
	case <-ctx.Done():
	case <-time.After(shortest + rand.N(longest-shortest)):
		child.Kill()
		end()
	}
	wg.Wait()
	return nil
}
