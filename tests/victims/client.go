// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A ClientConfig says whom a client talks to and from where.
type ClientConfig struct {
	Addr string
	// CPU is the CPU of the client's own OS thread, or NoPin.
	CPU int
	// Goroutine makes the client a plain goroutine over net.Conn, cheaper in great
	// numbers but with stamps that include the Go scheduler's delay. Without it the
	// client is an OS thread that blocks in read(2) and stamps at once.
	Goroutine bool
	RcvBuf    int           // SO_RCVBUF in bytes, set before connecting; 0 leaves the kernel's
	Timeout   time.Duration // of one read or write; default 10 s
}

// A Request is one exchange.
type Request struct {
	Case   Case
	Prompt string        // content of the message in the body
	Fresh  bool          // dial even where a connection is open
	Close  bool          // ask for the end of the connection
	Split  time.Duration // send the last part (the body, if Expect) in two segments this far apart
	Expect bool          // send the body after the interim answer
	// Stall stops the reading for so long once StallAfter content events were read
	// (0: before the first read), so that the window closes.
	Stall      time.Duration
	StallAfter int
}

// A Result is what the client saw of one exchange. Stamps are nanoseconds of
// CLOCK_MONOTONIC; one that did not happen is 0.
type Result struct {
	LocalPort, Ordinal      int // the connection's port; the exchange's number on it, from 1
	ConnectStart, Connected int64
	SentBefore, Sent        int64 // around the write of the request's last segment
	Interim, Headers, Role  int64 // the read that completed it
	Done                    int64 // the read that completed the answer
	StallStart, StallEnd    int64
	Reads                   []Read
	Events                  []Event
}

// TTFT is the time from just before the last segment of the request was written
// to the read that brought the first byte of content.
func (r *Result) TTFT() time.Duration {
	if len(r.Events) == 0 {
		return 0
	}
	return time.Duration(r.Events[0].First - r.SentBefore)
}

// TTFB is the time from the request to the read that completed the headers.
func (r *Result) TTFB() time.Duration { return time.Duration(r.Headers - r.SentBefore) }

// Gaps are the times between the first bytes of successive content events.
func (r *Result) Gaps() []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(r.Events); i++ {
		gaps = append(gaps, time.Duration(r.Events[i].First-r.Events[i-1].First))
	}
	return gaps
}

// A Client does one exchange after the other on one connection. It is for one
// goroutine at a time.
type Client struct {
	cfg     ClientConfig
	jobs    chan func() // the thread variant's
	ended   chan struct{}
	pinErr  error
	conn    wire
	ordinal int
	buf     []byte
}

// wire is a connection of either variant.
type wire interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	Close() error
	localPort() int
}

// NewClient returns a client; it dials with the first exchange.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	c := &Client{cfg: cfg, buf: make([]byte, 64<<10)}
	if !cfg.Goroutine {
		c.jobs, c.ended = make(chan func()), make(chan struct{})
		go c.thread()
	}
	return c
}

// thread runs the exchanges on one OS thread, which ends with it.
func (c *Client) thread() {
	defer close(c.ended)
	runtime.LockOSThread()
	if c.cfg.CPU >= 0 {
		c.pinErr = PinThread(c.cfg.CPU)
	}
	for job := range c.jobs {
		job()
	}
}

// Do sends one request and reads the whole answer. After an error the connection
// is closed and the next exchange dials.
func (c *Client) Do(req Request) (Result, error) {
	var res Result
	var err error
	if c.jobs == nil {
		err = c.exchange(req, &res)
	} else {
		done := make(chan struct{})
		c.jobs <- func() { err = c.exchange(req, &res); close(done) }
		<-done
	}
	if err != nil || req.Close {
		c.hangUp()
	}
	return res, err
}

// Close closes the connection and ends the client.
func (c *Client) Close() error {
	if c.jobs != nil {
		close(c.jobs)
		<-c.ended
		c.jobs = nil
	}
	return c.hangUp()
}

func (c *Client) hangUp() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}

func (c *Client) exchange(req Request, res *Result) error {
	if c.pinErr != nil {
		return fmt.Errorf("pinning the client: %w", c.pinErr)
	}
	head, body := req.bytes()
	if req.Fresh {
		c.hangUp()
	}
	if c.conn == nil {
		if err := c.dial(res); err != nil {
			return fmt.Errorf("dialling %s: %w", c.cfg.Addr, err)
		}
	}
	c.ordinal++
	res.LocalPort, res.Ordinal = c.conn.localPort(), c.ordinal
	parser := response{res: res}
	if req.Expect {
		if _, err := c.conn.Write(head); err != nil {
			return fmt.Errorf("sending the head: %w", err)
		}
		for res.Interim == 0 {
			if err := c.read(&parser); err != nil {
				return fmt.Errorf("waiting for the interim answer: %w", err)
			}
		}
		head = nil
	}
	if err := c.send(append(head, body...), req.Split, res); err != nil {
		return fmt.Errorf("sending the request: %w", err)
	}
	for parser.state != complete {
		if req.Stall > 0 && res.StallStart == 0 && len(res.Events) >= req.StallAfter {
			res.StallStart = Now()
			time.Sleep(req.Stall)
			res.StallEnd = Now()
		}
		if err := c.read(&parser); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
	}
	return nil
}

func (c *Client) dial(res *Result) (err error) {
	res.ConnectStart = Now()
	if c.cfg.Goroutine {
		c.conn, err = dialConn(c.cfg)
	} else {
		c.conn, err = dialSocket(c.cfg)
	}
	res.Connected = Now()
	c.ordinal = 0
	if err != nil {
		c.conn = nil
	}
	return err
}

func (c *Client) send(b []byte, split time.Duration, res *Result) error {
	if split > 0 {
		half := len(b) / 2
		if _, err := c.conn.Write(b[:half]); err != nil {
			return err
		}
		time.Sleep(split)
		b = b[half:]
	}
	res.SentBefore = Now()
	_, err := c.conn.Write(b)
	res.Sent = Now()
	return err
}

func (c *Client) read(p *response) error {
	n, err := c.conn.Read(c.buf)
	at := Now()
	if err != nil {
		return err
	}
	return p.feed(c.buf[:n], at)
}

// bytes returns the request's head and body.
func (req Request) bytes() (head, body []byte) {
	body, err := json.Marshal(map[string]any{
		"model": "victim", "stream": true,
		"messages": []any{map[string]string{"role": "user", "content": req.Prompt}},
	})
	if err != nil {
		panic(err) // strings only
	}
	var h strings.Builder
	fmt.Fprintf(&h, "POST /v1/chat/completions HTTP/1.1\r\nHost: victim\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	if text := req.Case.String(); text != "" {
		fmt.Fprintf(&h, "X-Case: %s\r\n", text)
	}
	if req.Expect {
		h.WriteString("Expect: 100-continue\r\n")
	}
	if req.Close {
		h.WriteString("Connection: close\r\n")
	}
	h.WriteString("\r\n")
	return []byte(h.String()), body
}

// Many runs n clients at once, each with rounds exchanges on its own connection,
// and returns all results, or the first error.
func Many(n, rounds int, cfg ClientConfig, request func(client, round int) Request) ([]Result, error) {
	results := make([][]Result, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			c := NewClient(cfg)
			defer c.Close()
			for round := range rounds {
				res, err := c.Do(request(i, round))
				if err != nil {
					errs[i] = fmt.Errorf("client %d, exchange %d: %w", i, round, err)
					return
				}
				results[i] = append(results[i], res)
			}
		})
	}
	all.Wait()
	var flat []Result
	for i := range n {
		if errs[i] != nil {
			return nil, errs[i]
		}
		flat = append(flat, results[i]...)
	}
	return flat, nil
}
