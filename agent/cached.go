// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// cached serves one answer to all who ask for the same form of it within freshFor:
// several scrapers cost little more than one.
type cached struct {
	next http.Handler

	mu   sync.Mutex
	kept map[string]*answer // by what was negotiated; at most maxForms
}

// maxForms bounds what odd headers can make the daemon keep.
const maxForms = 8

type answer struct {
	mu   sync.Mutex // held while it is made
	at   time.Time
	last *response
}

// response takes the place of the client while an answer is made.
type response struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (a *response) Header() http.Header         { return a.header }
func (a *response) WriteHeader(status int)      { a.status = status }
func (a *response) Write(b []byte) (int, error) { return a.body.Write(b) }

func newCached(next http.Handler) http.Handler {
	return &cached{next: next, kept: map[string]*answer{}}
}

func (c *cached) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery != "" {
		c.next.ServeHTTP(w, r)
		return
	}
	a := c.answer(r.Header.Get("Accept") + "\x00" + r.Header.Get("Accept-Encoding"))
	made := a.made(c.next, r)
	for k, v := range made.header {
		w.Header()[k] = v
	}
	w.WriteHeader(made.status)
	_, _ = w.Write(made.body.Bytes())
}

// made returns the answer, made anew where it is old. What it returns is not changed
// any more: a slow client holds nobody up.
func (a *answer) made(next http.Handler, r *http.Request) *response {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil || time.Since(a.at) >= freshFor {
		a.last = &response{status: http.StatusOK, header: http.Header{}}
		next.ServeHTTP(a.last, r)
		a.at = time.Now()
	}
	return a.last
}

func (c *cached) answer(form string) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.kept[form]
	if a == nil {
		if len(c.kept) >= maxForms {
			clear(c.kept)
		}
		a = &answer{}
		c.kept[form] = a
	}
	return a
}
