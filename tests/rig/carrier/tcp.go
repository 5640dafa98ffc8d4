// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/json"
	"errors"
	"net"

	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// One TCP connection a stream, from the producer to the consumer.

type tcpConsumer struct {
	asker
	l net.Listener
}

func newTCPConsumer(_ *Spec, sink *load.Sink) (Consumer, error) {
	l, err := listen()
	if err != nil {
		return nil, err
	}
	go accept(l, func(c net.Conn) {
		drain(c, sink)
		c.Close()
	})
	return &tcpConsumer{l: l}, nil
}

func (c *tcpConsumer) Address() any { return c.l.Addr().String() }

func (c *tcpConsumer) Connect(producer json.RawMessage) error {
	var addresses []string
	if err := json.Unmarshal(producer, &addresses); err != nil {
		return err
	}
	return c.connect(addresses)
}

func (c *tcpConsumer) Request(stream int) error {
	c.ask(stream, nil)
	return nil
}

func (c *tcpConsumer) Close() error { return errors.Join(c.asker.Close(), c.l.Close()) }

type tcpProducer struct {
	*answerer
	to string
}

func newTCPProducer(s *Spec, serve Serve) (Producer, error) {
	p := &tcpProducer{}
	var err error
	p.answerer, err = newAnswerer(s.Peers, func(_ int, r request) {
		c, err := net.Dial("tcp", p.to)
		if err != nil {
			serve(r.Stream, nil, err)
			return
		}
		serve(r.Stream, &framed{w: c}, nil)
	})
	return p, err
}

func (p *tcpProducer) Address() any { return p.Addresses }

func (p *tcpProducer) Connect(consumer json.RawMessage) error { return json.Unmarshal(consumer, &p.to) }
