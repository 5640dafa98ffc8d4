// SPDX-License-Identifier: Apache-2.0

package privileged

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Verb does one thing with rights. Its body is what the daemon sent, to be decoded
// with [Decode]; what it returns is sent back as JSON.
type Verb func(body []byte) (any, error)

// Verbs are all that a helper does, by name.
type Verbs map[string]Verb

// KindOf names an error's kind, so that the daemon can tell it apart; "" for none.
type KindOf func(error) string

// Decode reads a verb's body strictly: an unknown field is an error.
func Decode(body []byte, v any) error {
	if err := strict(body, v); err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	return nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// Serve answers one request after the other until the daemon is gone (nil) or sends
// what is no frame.
func Serve(conn io.ReadWriter, verbs Verbs, kind KindOf) error {
	for {
		var q request
		if err := readFrame(conn, &q, maxRequest); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading a request: %w", err)
		}
		if err := writeFrame(conn, answer(&q, verbs, kind), maxReply); err != nil {
			return fmt.Errorf("answering %s: %w", q.Verb, err)
		}
	}
}

func answer(q *request, verbs Verbs, kind KindOf) *reply {
	verb, ok := verbs[q.Verb]
	if !ok {
		return &reply{Error: fmt.Sprintf("no such verb: %.40q", q.Verb)}
	}
	out, err := verb(q.Body)
	r := &reply{}
	if err != nil {
		r.Error, r.Kind = err.Error(), kind(err)
	}
	if out != nil {
		if r.Body, err = json.Marshal(out); err != nil {
			r.Error = fmt.Sprintf("encoding the answer to %s: %v", q.Verb, err)
		}
	}
	return r
}

// ErrGone: the helper has died or was never there.
var ErrGone = errors.New("the helper is gone: restart the daemon to have probes again")

// RemoteError is what a verb answered.
type RemoteError struct{ Verb, Kind, Text string }

func (e *RemoteError) Error() string { return e.Text }

// Client asks a helper. It is safe for use by several goroutines; one request is
// under way at a time.
type Client struct {
	mu   sync.Mutex
	conn net.Conn
	gone bool
}

// NewClient speaks to the helper at the other end of conn, and owns conn.
func NewClient(conn net.Conn) *Client { return &Client{conn: conn} }

// Call asks for verb with the given body and decodes the answer into out (nil: it is
// not looked at), also where an error comes with one. A helper that answers neither
// in time nor in order is given up: that and every later error wraps ErrGone.
func (c *Client) Call(ctx context.Context, verb string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the request %s: %w", verb, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return ErrGone
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline() // none: no deadline
	if err := c.conn.SetDeadline(deadline); err != nil {
		return c.giveUp(verb, err)
	}
	defer context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })()
	if err := writeFrame(c.conn, &request{Verb: verb, Body: b}, maxRequest); err != nil {
		if errors.Is(err, ErrFrame) {
			return err // nothing was sent
		}
		return c.giveUp(verb, err)
	}
	var r reply
	if err := readFrame(c.conn, &r, maxReply); err != nil {
		return c.giveUp(verb, err)
	}
	if out != nil && r.Body != nil {
		if err := json.Unmarshal(r.Body, out); err != nil {
			return fmt.Errorf("decoding the answer to %s: %w", verb, err)
		}
	}
	if r.Error != "" {
		return &RemoteError{Verb: verb, Kind: r.Kind, Text: r.Error}
	}
	return nil
}

// giveUp closes the connection: what is on it can no longer be told apart.
func (c *Client) giveUp(verb string, err error) error {
	c.gone = true
	c.conn.Close()
	return fmt.Errorf("%w (asking it to %s: %w)", ErrGone, verb, err)
}

// Gone reports whether the helper was given up.
func (c *Client) Gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Close ends the connection, and with it the helper.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil
	}
	c.gone = true
	return c.conn.Close()
}
