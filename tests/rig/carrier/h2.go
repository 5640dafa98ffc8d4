// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// HTTP/2: an exchange a stream, whose body is flushed at each record, as servers of tokens
// do. The exchange is the request.

type h2Consumer struct {
	sink    *load.Sink
	clients []*http.Transport // one connection each
	urls    []string
}

func newH2Consumer(_ *Spec, sink *load.Sink) (Consumer, error) {
	return &h2Consumer{sink: sink}, nil
}

func (c *h2Consumer) Address() any { return nil }

func (c *h2Consumer) Connect(producer json.RawMessage) error {
	var addresses []string
	if err := json.Unmarshal(producer, &addresses); err != nil {
		return err
	}
	for _, address := range addresses {
		// Strict: wait for the server's limit, make no second connection.
		t := &http.Transport{
			Protocols: plainHTTP2(), DisableCompression: true, HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		}
		c.clients = append(c.clients, t)
		url := "http://" + address + "/"
		c.urls = append(c.urls, url)
		// The first exchange makes the connection and learns the server's limit.
		r, err := (&http.Client{Transport: t}).Get(url)
		if err != nil {
			return fmt.Errorf("connecting to %s: %w", address, err)
		}
		r.Body.Close()
	}
	return nil
}

func (c *h2Consumer) Request(stream int) error {
	go c.read(stream)
	return nil
}

func (c *h2Consumer) Flush() error { return nil }

func (c *h2Consumer) read(stream int) {
	peer := stream % len(c.clients)
	r, err := http.NewRequest(http.MethodGet, c.urls[peer]+strconv.Itoa(stream), nil)
	if err != nil {
		c.sink.Fail(err)
		return
	}
	answer, err := c.clients[peer].RoundTrip(r)
	if err != nil {
		c.sink.Stream(stream).End(err)
		return
	}
	drain(answer.Body, c.sink)
	answer.Body.Close()
}

func (c *h2Consumer) Close() error {
	for _, t := range c.clients {
		t.CloseIdleConnections()
	}
	return nil
}

type h2Producer struct {
	addresses []string
	server    *http.Server
}

func newH2Producer(s *Spec, serve Serve) (Producer, error) {
	p := &h2Producer{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		stream, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil {
			http.Error(w, "a stream's number is wanted", http.StatusBadRequest)
			return
		}
		body := &flushed{w, http.NewResponseController(w), make(chan struct{})}
		serve(stream, &framed{w: body}, nil)
		<-body.closed
	})
	// The default of 250 streams is no window of flow control, but would not carry the case.
	p.server = &http.Server{Handler: handler, Protocols: plainHTTP2(), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: s.Streams + 1}}
	for range s.Peers {
		l, err := listen()
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.addresses = append(p.addresses, l.Addr().String())
		go p.server.Serve(l) // it ends with Close
	}
	return p, nil
}

func (p *h2Producer) Address() any { return p.addresses }

func (p *h2Producer) Connect(json.RawMessage) error { return nil }

func (p *h2Producer) Close() error { return p.server.Close() }

// plainHTTP2 is HTTP/2 without TLS, and nothing else.
func plainHTTP2() *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &p
}

// flushed is a body.
type flushed struct {
	http.ResponseWriter
	control *http.ResponseController
	closed  chan struct{}
}

func (f *flushed) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	if err != nil {
		return n, err
	}
	return n, f.control.Flush()
}

// Close lets the handler return, which ends the body.
func (f *flushed) Close() error {
	close(f.closed)
	return nil
}
