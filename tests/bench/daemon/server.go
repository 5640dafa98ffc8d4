// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

const (
	serverPart = "server"
	tokens     = 4 // of an answer, each a write of its own
	token      = "data: an answer of more than forty bytes, as tokens have\n"
)

// server is the child in a namespace of its own: it listens on ports and answers.
type server struct {
	up        bool
	listeners []net.Listener
	held      atomic.Int64
}

// answer does what the parent asks: "listen FIRST N", "held", "talk" (one exchange
// with each of its own ports) and "close".
func (s *server) answer(words []string) (string, error) {
	switch {
	case len(words) == 3 && words[0] == "listen":
		first, err := strconv.Atoi(words[1])
		n, err2 := strconv.Atoi(words[2])
		return "ok", errors.Join(err, err2, s.listen(first, n))
	case len(words) == 1 && words[0] == "held":
		return strconv.FormatInt(s.held.Load(), 10), nil
	case len(words) == 1 && words[0] == "talk":
		return "ok", s.talk()
	case len(words) == 1 && words[0] == "close":
		for _, l := range s.listeners {
			l.Close()
		}
		s.listeners = nil
		return "ok", nil
	}
	return "", fmt.Errorf("asked for %q", words)
}

func (s *server) listen(first, n int) error {
	if !s.up {
		if err := live.LoopbackUp(); err != nil {
			return err
		}
		s.up = true
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // its sockets would be two
	for i := range n {
		l, err := lc.Listen(context.Background(), "tcp4", fmt.Sprintf("127.0.0.1:%d", first+i))
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
		go s.accept(l)
	}
	return nil
}

func (s *server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.held.Add(1)
		go func() {
			defer s.held.Add(-1)
			defer c.Close()
			s.serve(c)
		}()
	}
}

// serve answers every read with tokens that come after some time.
func (s *server) serve(c net.Conn) {
	b := make([]byte, 64)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
		for range tokens {
			time.Sleep(time.Duration(rand.ExpFloat64() * float64(2*time.Millisecond)))
			if _, err := io.WriteString(c, token); err != nil {
				return
			}
		}
	}
}

func (s *server) talk() error {
	for _, l := range s.listeners {
		c, err := net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr))
		if err != nil {
			return err
		}
		err = errors.Join(c.SetLinger(0), (&client{Conn: c}).exchange()) // leave no TIME_WAIT to the next wave
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
