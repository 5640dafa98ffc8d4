// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Requests of carriers that have none of their own travel over a connection to each
// peer, as those to an LLM worker do: the length, the stream's number, and a body of the
// carrier's own. All such carriers pay the same, the Rust program too.

type request struct {
	Stream int
	Body   []byte
}

const requestHead = 8

// asker is the consumer's side.
type asker struct {
	conns []net.Conn
	bufs  [][]byte // what Flush sends
}

func (a *asker) connect(addresses []string) error {
	for _, address := range addresses {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return fmt.Errorf("connecting for requests: %w", err)
		}
		a.conns = append(a.conns, c)
	}
	a.bufs = make([][]byte, len(addresses))
	return nil
}

// ask asks for a stream. body may be nil.
func (a *asker) ask(stream int, body []byte) {
	b := &a.bufs[stream%len(a.bufs)]
	*b = binary.BigEndian.AppendUint32(*b, uint32(len(body)))
	*b = binary.BigEndian.AppendUint32(*b, uint32(stream))
	*b = append(*b, body...)
}

func (a *asker) Flush() error {
	for i, b := range a.bufs {
		if len(b) == 0 {
			continue
		}
		if _, err := a.conns[i].Write(b); err != nil {
			return fmt.Errorf("asking for streams: %w", err)
		}
		a.bufs[i] = b[:0]
	}
	return nil
}

func (a *asker) Close() error { return closeAll(a.conns) }

// readRequest reads one. The body is the caller's.
func readRequest(r io.Reader) (q request, err error) {
	var head [requestHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return q, err
	}
	q.Stream = int(binary.BigEndian.Uint32(head[4:]))
	q.Body = make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err = io.ReadFull(r, q.Body)
	return q, err
}

// answerer is the producer's side.
type answerer struct {
	listeners []net.Listener
	Addresses []string
}

// newAnswerer calls begin in a goroutine of its own for each request to a peer.
func newAnswerer(peers int, begin func(peer int, r request)) (*answerer, error) {
	a := &answerer{}
	for peer := range peers {
		l, err := listen()
		if err != nil {
			return nil, errors.Join(err, a.Close())
		}
		a.listeners = append(a.listeners, l)
		a.Addresses = append(a.Addresses, l.Addr().String())
		go accept(l, func(c net.Conn) {
			defer c.Close()
			for br := bufio.NewReader(c); ; {
				r, err := readRequest(br)
				if err != nil { // the consumer has gone
					return
				}
				go begin(peer, r)
			}
		})
	}
	return a, nil
}

func (a *answerer) Close() error { return closeAll(a.listeners) }

func listen() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return l, nil
}

// accept serves each connection in a goroutine of its own until l is closed.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}

func closeAll[C interface{ Close() error }](all []C) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
