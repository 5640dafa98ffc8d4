// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
)

// cached serves one answer to all who ask for the same form of it within freshFor:
// several scrapers cost little more than one. Answers are made one at a time; nobody
// is refused because others ask much.
type cached struct {
	next http.Handler

	mu     sync.Mutex           // held while an answer is made that somebody waits for
	kept   map[string]*response // by form; at most maxForms
	making bool                 // one is made that nobody waits for
}

// staleAfter is how old an answer may be that is served while a new one is made.
const staleAfter = 3 * time.Second

// maxForms bounds how many answers are kept.
const maxForms = 8

// response takes the place of the client while an answer is made, and is not changed
// afterwards: a slow client holds nobody up.
type response struct {
	at     time.Time
	status int
	header http.Header
	body   bytes.Buffer
}

func (a *response) Header() http.Header         { return a.header }
func (a *response) WriteHeader(status int)      { a.status = status }
func (a *response) Write(b []byte) (int, error) { return a.body.Write(b) }

func newCached(next http.Handler) http.Handler {
	return &cached{next: next, kept: map[string]*response{}}
}

func (c *cached) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	made := c.answer(r)
	for k, v := range made.header {
		w.Header()[k] = v
	}
	w.WriteHeader(made.status)
	_, _ = w.Write(made.body.Bytes())
}

func (c *cached) answer(r *http.Request) *response {
	r = r.Clone(context.WithoutCancel(r.Context())) // others get the answer too
	form := negotiate(r)
	part := r.URL.Query().Has("name[]") // some families of the page
	c.mu.Lock()
	defer c.mu.Unlock()
	if part {
		return c.make(r)
	}
	a := c.kept[form]
	if a == nil || time.Since(a.at) >= staleAfter {
		a = c.make(r)
		c.put(form, a)
	} else if time.Since(a.at) >= freshFor && !c.making {
		// Others ask all the time: they get what there is while it is made anew.
		c.making = true
		go func() {
			a := c.make(r)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.making = false
			c.put(form, a)
		}()
	}
	return a
}

func (c *cached) make(r *http.Request) *response {
	a := &response{status: http.StatusOK, header: http.Header{}}
	c.next.ServeHTTP(a, r)
	if r.Header.Get("Accept-Encoding") == "gzip" {
		a.compress()
	}
	a.at = time.Now()
	return a
}

// put keeps an answer that is one. The lock is held.
func (c *cached) put(form string, a *response) {
	if a.status != http.StatusOK {
		return
	}
	if len(c.kept) >= maxForms {
		clear(c.kept)
	}
	c.kept[form] = a
}

// compress packs the answer fast rather than well: a page says the same many times.
func (a *response) compress() {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(a.body.Bytes())
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return // it is served as it is
	}
	a.body = b
	a.header.Set("Content-Encoding", "gzip")
	a.header.Del("Content-Length")
}

// negotiate returns the form that r asks for, of which there are few, and leaves of
// what r accepts just that encoding.
func negotiate(r *http.Request) string {
	encoding := "identity"
	for e := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, q, _ := strings.Cut(strings.ReplaceAll(e, " ", ""), ";q=")
		if weight, err := strconv.ParseFloat(q, 64); name == "gzip" && (err != nil || weight > 0) {
			encoding = name
		}
	}
	r.Header.Set("Accept-Encoding", encoding)
	return string(expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)) + " " + encoding
}
