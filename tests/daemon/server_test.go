// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// server answers a few tokens over SSE.
type server struct {
	port int
	// ttft is how long it thinks; acceptEvery how long it sleeps before each accept.
	ttft, acceptEvery atomic.Int64 // ns
	http              *http.Server
}

const (
	tokens   = 3
	tokenGap = 2 * time.Millisecond
)

// serve starts a server on the address, in this process.
func serve(t *testing.T, address string) *server {
	t.Helper()
	l := listen(t, address)
	s := &server{port: l.Addr().(*net.TCPAddr).Port}
	s.http = &http.Server{Handler: http.HandlerFunc(s.answer)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.http.Serve(&drowsy{l, s}) })
	t.Cleanup(func() {
		s.http.Close()
		wg.Wait()
	})
	return s
}

// listen listens with plain TCP: the probes do not see into MPTCP.
func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(t.Context(), "tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// drowsy sleeps before each accept.
type drowsy struct {
	net.Listener
	s *server
}

func (d *drowsy) Accept() (net.Conn, error) {
	time.Sleep(time.Duration(d.s.acceptEvery.Load()))
	return d.Listener.Accept()
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Duration(s.ttft.Load()))
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range tokens {
		if i > 0 {
			time.Sleep(tokenGap)
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"token %d\"}}]}\n\n", i)
		w.(http.Flusher).Flush()
	}
}

func (s *server) address() string { return net.JoinHostPort("127.0.0.1", s.label()) }

// label is the value of the label port.
func (s *server) label() string { return strconv.Itoa(s.port) }

// ask makes n exchanges, one after the other on one connection.
func (s *server) ask(t *testing.T, n int) {
	t.Helper()
	c := client(t, "tcp", s.address())
	defer c.CloseIdleConnections()
	for range n {
		if err := askOnce(c); err != nil {
			t.Fatal(err)
		}
	}
}

func askOnce(c *http.Client) error {
	resp, err := c.Get("http://server/v1/completions")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// crowd makes n exchanges at once, each on a connection of its own.
func (s *server) crowd(t *testing.T, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			c := client(t, "tcp", s.address())
			defer c.CloseIdleConnections()
			if err := askOnce(c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
