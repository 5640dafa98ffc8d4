// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sort"
	"syscall"
	"time"
)

// Options describes one streamed chat request.
type Options struct {
	Prompt  string        // "hello" if empty
	Tokens  int           // how many tokens to ask for; 16 if 0
	Path    string        // "/v1/chat/completions" if empty
	Timeout time.Duration // of the whole exchange; 60 s if 0

	// Receive, where not nil, is called with each read's number (from 0) after
	// its stamp was taken; a test slows its client down with it.
	Receive func(read int)
}

// Conn is one client connection to an OpenAI-style server, for one exchange at a
// time. It is not safe for use by several goroutines.
type Conn struct {
	host      string
	dialer    net.Dialer
	conn      net.Conn // nil when closed
	dialStart int64
	connected int64
	exchanges int
	buffer    [64 << 10]byte
}

// NewConn returns a connection to the server of address ("http://host:port"),
// which is dialled at the first exchange.
func NewConn(address string) (*Conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("reading the server's address: %w", err)
	}
	if u.Scheme != "http" || u.Port() == "" {
		return nil, fmt.Errorf("reading the server's address: %q is not http://host:port", address)
	}
	return &Conn{host: u.Host}, nil
}

// SetReceiveBuffer asks for a socket receive buffer of n bytes on connections
// that are dialled from now on.
func (c *Conn) SetReceiveBuffer(n int) {
	c.dialer.Control = func(_, _ string, raw syscall.RawConn) error {
		var setErr error
		err := raw.Control(func(fd uintptr) {
			setErr = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, n)
		})
		return errors.Join(err, setErr)
	}
}

// Close closes the connection; the next exchange dials a new one.
func (c *Conn) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// Stream performs one exchange on a connection of its own.
func Stream(ctx context.Context, address, model string, options Options) (Timing, error) {
	c, err := NewConn(address)
	if err != nil {
		return Timing{}, err
	}
	defer c.Close()
	return c.Stream(ctx, model, options)
}

// errIdleClosed says that a kept connection was closed by the server before it
// answered: the request may be sent again.
var errIdleClosed = errors.New("the idle connection was closed by the server")

// Stream performs one exchange, dialling first where there is no connection. It
// tries again once, on a new connection, where a kept one turns out to be closed.
// It returns what it saw also with an error: for a status other than 200, an
// error in the stream, a stream that broke off, or ctx's end.
func (c *Conn) Stream(ctx context.Context, model string, options Options) (Timing, error) {
	timing, err := c.exchange(ctx, model, options)
	if errors.Is(err, errIdleClosed) {
		timing, err = c.exchange(ctx, model, options)
		timing.Retried = true
	}
	return timing, err
}

func (c *Conn) exchange(ctx context.Context, model string, options Options) (Timing, error) {
	request, err := c.request(model, options)
	if err != nil {
		return Timing{}, err
	}
	timeout := options.Timeout
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.dial(ctx); err != nil {
		return Timing{}, fmt.Errorf("connecting to %s: %w", c.host, err)
	}
	conn := c.conn
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()

	c.exchanges++
	t := Timing{
		LocalPort: conn.LocalAddr().(*net.TCPAddr).Port, Exchange: c.exchanges,
		DialStart: c.dialStart, Connected: c.connected,
	}
	var r response
	keep := false
	defer func() {
		if !keep {
			c.Close()
		}
	}()
	t.WriteStart = Now()
	_, err = conn.Write(request)
	t.WriteEnd = Now()
	var ends []int // length of the body after each read
	if err == nil {
		ends, err = c.receive(&r, &t, options.Receive)
	}
	t.Status = r.status
	switch {
	case err != nil && ctx.Err() != nil:
		err = ctx.Err()
	case err != nil && len(t.Reads) == 0 && t.Exchange > 1:
		return t, errIdleClosed
	}
	keep = err == nil && !r.closes && len(r.raw) == 0
	return t, errors.Join(wrap(err, "streaming from "+c.host), t.understand(&r, ends))
}

// receive reads until the response is complete.
func (c *Conn) receive(r *response, t *Timing, hook func(int)) (ends []int, err error) {
	for !r.ended {
		n, err := c.conn.Read(c.buffer[:])
		at := Now()
		if n > 0 {
			headed := r.headed
			feedErr := r.feed(c.buffer[:n])
			t.Reads = append(t.Reads, Read{At: at, Bytes: n, Head: r.headed && !headed})
			ends = append(ends, len(r.body))
			if feedErr != nil {
				return ends, feedErr
			}
			if hook != nil {
				hook(len(t.Reads) - 1)
			}
		}
		if errors.Is(err, io.EOF) {
			c.Close()
			return ends, r.closed()
		}
		if err != nil {
			return ends, err
		}
	}
	return ends, nil
}

// understand sorts the events of the body into the reads in which they ended.
func (t *Timing) understand(r *response, ends []int) error {
	if !r.headed {
		return nil
	}
	if r.status != 200 {
		return fmt.Errorf("the server answered with status %d", r.status)
	}
	list, err := events(r.body)
	for _, e := range list {
		read := &t.Reads[sort.SearchInts(ends, e.end)]
		switch e.kind {
		case Content:
			read.Content++
		case Role:
			read.Role = true
		case Done:
			read.Done = true
		case Failure:
			read.Other++
			err = errors.Join(err, errors.New("the server sent an error in the stream"))
		default:
			read.Other++
		}
	}
	return err
}

func (c *Conn) dial(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	start := Now()
	conn, err := c.dialer.DialContext(ctx, "tcp", c.host)
	if err != nil {
		return err
	}
	c.conn, c.dialStart, c.connected, c.exchanges = conn, start, Now(), 0
	return nil
}

func (c *Conn) request(model string, o Options) ([]byte, error) {
	prompt, tokens, path := o.Prompt, o.Tokens, o.Path
	if prompt == "" {
		prompt = "hello"
	}
	if tokens == 0 {
		tokens = 16
	}
	if path == "" {
		path = "/v1/chat/completions"
	}
	body, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "max_tokens": tokens, "ignore_eos": true,
		"stream_options": map[string]bool{"include_usage": true},
		"messages":       []map[string]string{{"role": "user", "content": prompt}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, c.host, len(body))
	return append([]byte(head), body...), nil
}

func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
