// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// page serves the metrics. One answer is for all who ask for the same form of it within
// freshFor, so that several scrapers cost little more than one; answers are made one at
// a time, family by family, and nobody is refused because others ask much.
type page struct {
	each func(func(*dto.MetricFamily) error) error
	log  *slog.Logger

	making sync.Mutex // held while an answer is made
	mu     sync.Mutex
	kept   map[form]*answer // at most maxForms
	anew   bool             // one is made that nobody waits for
}

// form is what was negotiated.
type form struct {
	format expfmt.Format
	gzip   bool
}

type answer struct {
	at   time.Time
	body []byte
	err  error
}

const (
	// maxForms bounds how many answers are kept.
	maxForms = 8
	// staleAfter is how old an answer may be that is served while a new one is made.
	staleAfter = 3 * time.Second
)

func newPage(each func(func(*dto.MetricFamily) error) error, log *slog.Logger) *page {
	return &page{each: each, log: log, kept: map[form]*answer{}}
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := negotiate(r)
	a := p.answer(f)
	if a.err != nil {
		http.Error(w, fmt.Sprintf("making the page: %v", a.err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(f.format))
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	if f.gzip {
		w.Header().Set("Content-Encoding", "gzip")
	}
	_, _ = w.Write(a.body) // the client went away
}

// answer returns what is kept, or makes it. While others ask all the time they get
// what there is and it is made anew beside.
func (p *page) answer(f form) *answer {
	p.mu.Lock()
	a, age := p.kept[f], time.Duration(0)
	if a != nil {
		age = time.Since(a.at)
	}
	beside := a != nil && age >= freshFor && age < staleAfter && !p.anew
	if beside {
		p.anew = true
	}
	p.mu.Unlock()
	if a == nil || age >= staleAfter {
		return p.fresh(f)
	}
	if beside {
		go func() {
			p.fresh(f)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.anew = false
		}()
	}
	return a
}

// fresh makes an answer, or takes the one that somebody made meanwhile.
func (p *page) fresh(f form) *answer {
	p.making.Lock()
	defer p.making.Unlock()
	p.mu.Lock()
	a := p.kept[f]
	p.mu.Unlock()
	if a != nil && time.Since(a.at) < freshFor {
		return a
	}
	var b bytes.Buffer
	err := p.write(&b, f)
	if err != nil {
		p.log.Error("making the page of metrics", "error", err)
		return &answer{err: err}
	}
	a = &answer{at: time.Now(), body: bytes.Clone(b.Bytes())}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) >= maxForms {
		clear(p.kept)
	}
	p.kept[f] = a
	return a
}

// write writes family by family: the whole page as values would take ten times its
// length. It is packed fast rather than well, since it says the same many times.
func (p *page) write(w io.Writer, f form) error {
	end := func() error { return nil }
	if f.gzip {
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		w, end = z, z.Close
	}
	enc := expfmt.NewEncoder(w, f.format)
	if err := p.each(enc.Encode); err != nil {
		return err
	}
	if c, ok := enc.(expfmt.Closer); ok {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return end()
}

// negotiate returns the form that r asks for, of which there are few.
func negotiate(r *http.Request) form {
	f := form{format: expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)}
	for e := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, q, _ := strings.Cut(strings.ReplaceAll(e, " ", ""), ";q=")
		if weight, err := strconv.ParseFloat(q, 64); name == "gzip" && (err != nil || weight > 0) {
			f.gzip = true
		}
	}
	return f
}
