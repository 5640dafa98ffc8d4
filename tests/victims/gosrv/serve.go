// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/tests/victims"
)

const (
	head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" +
		"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
	eventOpen  = `data: {"choices":[{"index":0,"delta":{"content":"`
	eventClose = "\"}}]}\n\n"
	roleEvent  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

// An answer is where respond writes to: its own chunks or net/http's.
type answer interface {
	headers(joined bool) error // joined: they leave with the first event
	event(text string) error
	done() error
}

// respond streams what the plan asks for.
func (s *server) respond(a answer, plan victims.Case, e *victims.Entry) error {
	if plan.Early {
		if err := a.headers(false); err != nil {
			return err
		}
	}
	if plan.Engine > 0 {
		e.Injected.Engine = sleep(plan.Engine)
	}
	if !plan.Early {
		if err := a.headers(plan.Joined); err != nil {
			return err
		}
	}
	if plan.Role {
		if err := a.event(roleEvent); err != nil {
			return err
		}
	}
	for i := range plan.NumChunks() {
		if gap := plan.GapBefore(i); gap > 0 {
			time.Sleep(gap)
		}
		pad := max(0, plan.Size(i)-len(eventOpen)-len(s.answer)-len(eventClose))
		if err := a.event(eventOpen + s.answer + strings.Repeat("x", pad) + eventClose); err != nil {
			return err
		}
	}
	return a.done()
}

// The own loop: one goroutine and one write per chunk.

func (s *server) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			continue
		}
		go s.serveConn(c.(*conn))
	}
}

func (s *server) serveConn(c *conn) {
	defer c.Close()
	if s.handoff {
		c.lock()
	}
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			if _, err := c.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
				return
			}
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		plan, e := s.begin(c, req)
		if s.respond(&chunks{c: c}, plan, e) != nil || req.Close {
			return
		}
	}
}

func (s *server) begin(c *conn, req *http.Request) (victims.Case, *victims.Entry) {
	text := req.Header.Get("X-Case")
	plan := victims.ParseCase(text)
	e := c.begin(plan, text)
	// Behind a front server the log names the front's connection.
	if port, err := strconv.Atoi(req.Header.Get("X-Client-Port")); err == nil {
		e.RemotePort = port
		e.Ordinal, _ = strconv.Atoi(req.Header.Get("X-Client-Ordinal"))
	}
	return plan, e
}

type chunks struct {
	c    *conn
	held string
}

func (a *chunks) write(text string) error {
	_, err := a.c.Write([]byte(a.held + text))
	a.held = ""
	return err
}

func (a *chunks) headers(joined bool) error {
	if joined {
		a.held = head
		return nil
	}
	return a.write(head)
}

func (a *chunks) event(text string) error {
	return a.write(fmt.Sprintf("%x\r\n%s\r\n", len(text), text))
}

func (a *chunks) done() error {
	return a.write(fmt.Sprintf("%x\r\n%s\r\n%s", len(doneEvent), doneEvent, lastChunk))
}

// net/http. It writes a chunk above 2 KiB in more than one write.

type connKey struct{}

func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c := req.Context().Value(connKey{}).(*conn)
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return
	}
	plan, e := s.begin(c, req)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	// An error means that the client has gone; net/http finds that out itself.
	_ = s.respond(&flushed{w, http.NewResponseController(w)}, plan, e)
}

type flushed struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (a *flushed) headers(joined bool) error {
	if joined {
		return nil
	}
	return a.rc.Flush()
}

func (a *flushed) event(text string) error {
	if _, err := io.WriteString(a.w, text); err != nil {
		return err
	}
	return a.rc.Flush()
}

func (a *flushed) done() error {
	_, err := io.WriteString(a.w, doneEvent) // the handler's end flushes it with the last chunk
	return err
}
