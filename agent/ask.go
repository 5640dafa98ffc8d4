// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// mostAnswer bounds what is read of a daemon's answer.
const mostAnswer = 256 << 20

// Asked is a daemon of this node that answers over its Unix socket. As a Source it
// only measures.
type Asked struct {
	path   string
	client *http.Client
}

// Ask returns the daemon that answers on the socket. ErrNotThere: none does.
func Ask(ctx context.Context, path string) (*Asked, error) {
	a := &Asked{path: path, client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}}
	body, err := a.get(ctx, "/healthz", nil)
	if err != nil {
		return nil, err
	}
	return a, body.Close()
}

func (a *Asked) get(ctx context.Context, what string, q url.Values) (io.ReadCloser, error) {
	u := url.URL{Scheme: "http", Host: "daemon", Path: what, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: no daemon answers on %s; start one with `velo-agent run`", ErrNotThere, a.path)
	case err != nil:
		return nil, fmt.Errorf("asking the daemon on %s: %w", a.path, err)
	case resp.StatusCode == http.StatusOK:
		return struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, mostAnswer), resp.Body}, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
	err = fmt.Errorf("the daemon on %s answers: %s", a.path, strings.TrimSpace(string(text)))
	if resp.StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	return nil, err
}

func (a *Asked) decode(ctx context.Context, what string, q url.Values, v any) error {
	body, err := a.get(ctx, what, q)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(v); err != nil {
		return fmt.Errorf("reading the answer of the daemon on %s to %s: %w", a.path, what, err)
	}
	return nil
}

// Measure implements Source. The streams are those of the daemon's present window.
func (a *Asked) Measure(ctx context.Context, _ Reading) (*diagnosis.Measured, error) {
	var m diagnosis.Measured
	if err := a.decode(ctx, "/api/v1/measured", nil, &m); err != nil {
		return nil, err
	}
	return &m, nil
}

// Window asks for what the record holds of the span.
func (a *Asked) Window(ctx context.Context, from time.Time, length time.Duration) (*Recorded, error) {
	var r Recorded
	q := url.Values{"at": {from.UTC().Format(time.RFC3339Nano)}, "for": {length.String()}}
	if err := a.decode(ctx, "/api/v1/window", q, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// Rewatch implements Source.
func (a *Asked) Rewatch(context.Context, Watch, bpf.Objectives) error {
	return errors.New("what a daemon watches is set in its configuration")
}

// Close implements Source; the daemon goes on.
func (a *Asked) Close() error {
	a.client.CloseIdleConnections()
	return nil
}

// DiagnoseFrom reports on a window of a source that measures already. Where w names
// something, the report is of that alone.
func DiagnoseFrom(ctx context.Context, s Source, w Watch, window time.Duration, tell Progress) (*diagnosis.Report, error) {
	tell("measuring", 0, window)
	before, err := s.Measure(ctx, Reading{})
	if err != nil {
		return nil, err
	}
	pass(ctx, window, func(since time.Duration) { tell("measuring", since, window) })
	after, err := s.Measure(context.WithoutCancel(ctx), Reading{})
	if err != nil {
		return nil, err
	}
	m := after.Since(before)
	m.Ports = w.Of(m)
	return diagnosis.Build(m), nil
}

// within reports whether a cgroup is another or below it.
func within(cgroup, other string) bool {
	return cgroup == other || strings.HasPrefix(cgroup, strings.TrimSuffix(other, "/")+"/")
}

// Of returns the ports of m that w names; all where it names none.
func (w Watch) Of(m *diagnosis.Measured) []diagnosis.Port {
	if w.empty() {
		return m.Ports
	}
	out := []diagnosis.Port{}
	for i := range m.Ports {
		p := &m.Ports[i]
		inCgroup := slices.ContainsFunc(w.Cgroups, func(c string) bool { return within(p.Cgroup, c) })
		if slices.Contains(w.Ports, p.Port) || slices.Contains(w.PIDs, p.PID) || inCgroup {
			out = append(out, *p)
		}
	}
	return out
}

// Of keeps of the report's span what w names. ErrNotThere: nothing of it.
func (r *Recorded) Of(w Watch) error {
	r.Ports = w.Of(r.Measured)
	if len(r.Ports) == 0 && !w.empty() {
		return fmt.Errorf("%w: the record has nothing of it in that span", ErrNotThere)
	}
	return nil
}
