// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/tests/peers"
)

// server streams chat completions in the way of an OpenAI-style engine, and
// disturbs them as its schedule says.
type server struct {
	schedule schedule
	accept   time.Duration // slowAccept: from a waiting connection to its accept
	think    time.Duration // think: before the first token
	read     time.Duration // lateRead: from accept to the first read
	token    time.Duration // between tokens, always

	stop context.Context

	mu       sync.Mutex
	injected [numPhases]injection
}

// injection is what the server did of one disturbance, by its own clock.
type injection struct {
	times int
	total time.Duration
}

func serverMain(ctx context.Context, args []string) int {
	s := &server{stop: ctx}
	var port int
	flags := flag.NewFlagSet("demo server", flag.ContinueOnError)
	flags.IntVar(&port, "port", 0, "`port` on 127.0.0.1; 0 lets the system choose")
	flags.DurationVar(&s.schedule.length, "phase", 3*time.Second, "length of one phase")
	flags.Int64Var(&s.schedule.epoch, "epoch", peers.Now(), "start of the first phase, CLOCK_MONOTONIC in `ns`")
	flags.DurationVar(&s.accept, "accept", 40*time.Millisecond, "delay of each accept in its phase")
	flags.DurationVar(&s.think, "think", 80*time.Millisecond, "delay of the first token in its phase")
	flags.DurationVar(&s.read, "read", 30*time.Millisecond, "delay of the first read in its phase")
	flags.DurationVar(&s.token, "token", 20*time.Millisecond, "time between tokens")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	if s.schedule.length <= 0 || flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "demo server: --phase must be positive, and there are no arguments")
		return exitUsage
	}
	if err := s.run(port, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "demo server: %v\n", err)
		return exitInternal
	}
	return exitOK
}

// run serves until s.stop ends. It writes its address as the first line of out,
// and at the end a line for each disturbance.
func (s *server) run(port int, out io.Writer) error {
	// Plain TCP: Go's default of MPTCP would answer the same, over other paths
	// of the kernel.
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(s.stop, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Fprintf(out, "http://%s\n", l.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.chat)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(s.stop, func() { web.Close() })()
	err = web.Serve(&listener{TCPListener: l.(*net.TCPListener), server: s})
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, i := range s.injected {
		if i.times > 0 {
			fmt.Fprintf(out, "%s: %d times, %.0f ms each\n", phase(p), i.times, i.total.Seconds()*1e3/float64(i.times))
		}
	}
	return nil
}

// disturb sleeps for d if it is p's turn, and keeps count of it. It ends early
// when the server stops.
func (s *server) disturb(p phase, d time.Duration) {
	if s.schedule.now() != p {
		return
	}
	start := peers.Now()
	if !s.sleep(d) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.injected[p].times++
	s.injected[p].total += time.Duration(peers.Now() - start)
}

// sleep returns false where the server was stopped meanwhile.
func (s *server) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stop.Done():
		return false
	}
}

// bulk is the content of a token while readers stall: a few of them fill the
// socket's buffers.
var bulk = strings.Repeat("x", 64<<10)

func (s *server) chat(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_tokens"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&request); err != nil {
		http.Error(w, "the body is no chat request", http.StatusBadRequest)
		return
	}
	s.disturb(think, s.think)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	out := http.NewResponseController(w)
	for i := range min(max(request.MaxTokens, 1), 4096) {
		if i > 0 && !s.sleep(s.token) {
			return
		}
		content := "token "
		if s.schedule.now() == stalledRead {
			content = bulk
		}
		fmt.Fprintf(w, "data: {\"object\":\"chat.completion.chunk\",\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", request.Model, content)
		if out.Flush() != nil {
			return
		}
	}
	io.WriteString(w, "data: [DONE]\n\n")
}
