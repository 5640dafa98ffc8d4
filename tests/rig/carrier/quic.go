// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// QUIC: a connection a peer, on which the producer opens streams in one direction.

const quicProtocol = "velo-agent-rig"

type quicConsumer struct {
	asker
	l *quic.Listener
}

func newQUICConsumer(s *Spec, sink *load.Sink) (Consumer, error) {
	certificate, err := selfSigned()
	if err != nil {
		return nil, err
	}
	l, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{quicProtocol}},
		// The default of 100 streams is no window of flow control, but would not carry the case.
		&quic.Config{MaxIncomingUniStreams: int64(s.Streams)})
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	c := &quicConsumer{l: l}
	go c.accept(sink)
	return c, nil
}

func (c *quicConsumer) accept(sink *load.Sink) {
	ctx := context.Background()
	for {
		conn, err := c.l.Accept(ctx)
		if err != nil { // it was closed
			return
		}
		go func() {
			for {
				r, err := conn.AcceptUniStream(ctx)
				if err != nil { // the producer has gone
					return
				}
				go drain(r, sink)
			}
		}()
	}
}

func (c *quicConsumer) Address() any { return c.l.Addr().String() }

func (c *quicConsumer) Connect(producer json.RawMessage) error {
	var addresses []string
	if err := json.Unmarshal(producer, &addresses); err != nil {
		return err
	}
	return c.connect(addresses)
}

func (c *quicConsumer) Request(stream int) error {
	c.ask(stream, nil)
	return nil
}

func (c *quicConsumer) Close() error { return errors.Join(c.asker.Close(), c.l.Close()) }

type quicProducer struct {
	*answerer
	conns []*quic.Conn
}

func newQUICProducer(s *Spec, serve Serve) (Producer, error) {
	p := &quicProducer{conns: make([]*quic.Conn, s.Peers)}
	var err error
	p.answerer, err = newAnswerer(s.Peers, func(peer int, r request) {
		w, err := p.conns[peer].OpenUniStreamSync(context.Background())
		if err != nil {
			serve(r.Stream, nil, err)
			return
		}
		serve(r.Stream, &framed{w: w}, nil)
	})
	return p, err
}

func (p *quicProducer) Address() any { return p.Addresses }

func (p *quicProducer) Connect(consumer json.RawMessage) error {
	var to string
	if err := json.Unmarshal(consumer, &to); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for i := range p.conns {
		var err error
		// It is our own process on this host, and its certificate was made just now.
		p.conns[i], err = quic.DialAddr(ctx, to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{quicProtocol}}, nil)
		if err != nil {
			return fmt.Errorf("connecting to %s: %w", to, err)
		}
	}
	return nil
}

func (p *quicProducer) Close() error {
	err := p.answerer.Close()
	for _, c := range p.conns {
		err = errors.Join(err, c.CloseWithError(0, ""))
	}
	return err
}

func selfSigned() (c tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return c, fmt.Errorf("making a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
