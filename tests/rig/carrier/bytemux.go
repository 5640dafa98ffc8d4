// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// yamux and smux: a connection a peer, on which the producer opens streams of bytes.

// session is what the two have in common.
type session interface {
	open() (io.WriteCloser, error)
	accept() (io.ReadCloser, error)
	io.Closer
}

type muxConsumer struct {
	tcpConsumer
}

func newMuxConsumer(server func(net.Conn) (session, error)) func(*Spec, *load.Sink) (Consumer, error) {
	return func(_ *Spec, sink *load.Sink) (Consumer, error) {
		l, err := listen()
		if err != nil {
			return nil, err
		}
		go accept(l, func(c net.Conn) {
			s, err := server(c)
			if err != nil {
				sink.Fail(fmt.Errorf("serving a connection: %w", err))
				return
			}
			defer s.Close()
			for {
				r, err := s.accept()
				if err != nil { // the producer has gone
					return
				}
				go func() {
					drain(r, sink)
					r.Close()
				}()
			}
		})
		return &muxConsumer{tcpConsumer{l: l}}, nil
	}
}

type muxProducer struct {
	*answerer
	client   func(net.Conn) (session, error)
	sessions []session
}

func newMuxProducer(client func(net.Conn) (session, error)) func(*Spec, Serve) (Producer, error) {
	return func(s *Spec, serve Serve) (Producer, error) {
		p := &muxProducer{client: client, sessions: make([]session, s.Peers)}
		var err error
		p.answerer, err = newAnswerer(s.Peers, func(peer int, r request) {
			w, err := p.sessions[peer].open()
			if err != nil {
				serve(r.Stream, nil, err)
				return
			}
			serve(r.Stream, &framed{w: w}, nil)
		})
		return p, err
	}
}

func (p *muxProducer) Address() any { return p.Addresses }

func (p *muxProducer) Connect(consumer json.RawMessage) error {
	var to string
	if err := json.Unmarshal(consumer, &to); err != nil {
		return err
	}
	for i := range p.sessions {
		c, err := net.Dial("tcp", to)
		if err != nil {
			return err
		}
		if p.sessions[i], err = p.client(c); err != nil {
			return err
		}
	}
	return nil
}

func (p *muxProducer) Close() error { return errors.Join(p.answerer.Close(), closeAll(p.sessions)) }
