// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/privileged"
)

// Source gives readings of a session, wherever it runs. Readings are cumulative: two
// of them make a window (diagnosis.Measured.Since).
type Source interface {
	Measure(ctx context.Context, how Reading) (*diagnosis.Measured, error)
	// Rewatch changes what is watched, and the objectives.
	Rewatch(ctx context.Context, w Watch, o bpf.Objectives) error
	// Close detaches everything.
	Close() error
}

// Reading says how to measure. The zero value reads everything anew.
type Reading struct {
	// Forget begins a new list of the slowest streams after this reading.
	Forget bool `json:"forget,omitempty"`
	// Lazy lets a port at which nothing happened since the reading before be as it
	// was then; what is around it is looked at once in restFor.
	Lazy bool `json:"lazy,omitempty"`
}

// inProcess is a session of this process.
type inProcess struct{ *Session }

// InProcess makes a session a Source.
func InProcess(s *Session) Source { return inProcess{s} }

func (p inProcess) Measure(_ context.Context, how Reading) (*diagnosis.Measured, error) {
	m, err := p.measure(Reading{Forget: how.Forget})
	if err != nil {
		return nil, err
	}
	return m.Measured, nil
}

func (p inProcess) Rewatch(_ context.Context, w Watch, o bpf.Objectives) error {
	return p.Session.Rewatch(w, o)
}

// The verbs of the helper and their bodies: all that it takes from the daemon.
const (
	verbOpen    = "open"
	verbMeasure = "measure"
	verbRewatch = "rewatch"
	verbClose   = "close"
)

type rewatchRequest struct {
	Watch      Watch          `json:"watch"`
	Objectives bpf.Objectives `json:"objectives"`
}

// Helper answers the daemon's verbs with a session of its own.
type Helper struct {
	log     *slog.Logger
	session *Session
	ctx     context.Context
}

// NewHelper returns a helper whose session ends with ctx.
func NewHelper(ctx context.Context, log *slog.Logger) *Helper { return &Helper{log: log, ctx: ctx} }

// Close ends the session, if there is one.
func (h *Helper) Close() error {
	if h.session == nil {
		return nil
	}
	err := h.session.Close()
	h.session = nil
	return err
}

var errNoSession = errors.New("no session is open: the first verb is open")

// Verbs are what the helper does.
func (h *Helper) Verbs() privileged.Verbs {
	return privileged.Verbs{
		verbOpen: func(body []byte) (any, error) {
			var q Options
			if err := privileged.Decode(body, &q); err != nil {
				return nil, err
			}
			if h.session != nil {
				return nil, errors.New("a session is open already")
			}
			q.SampleCosts, q.Log = true, h.log
			var err error
			h.session, err = Open(h.ctx, q)
			return nil, err
		},
		verbMeasure: func(body []byte) (any, error) {
			var how Reading
			if err := privileged.Decode(body, &how); err != nil {
				return nil, err
			}
			if h.session == nil {
				return nil, errNoSession
			}
			return h.session.measure(how)
		},
		verbRewatch: func(body []byte) (any, error) {
			var q rewatchRequest
			if err := privileged.Decode(body, &q); err != nil {
				return nil, err
			}
			if h.session == nil {
				return nil, errNoSession
			}
			return nil, h.session.Rewatch(q.Watch, q.Objectives)
		},
		verbClose: func(body []byte) (any, error) {
			var q struct{}
			if err := privileged.Decode(body, &q); err != nil {
				return nil, err
			}
			return nil, h.Close()
		},
	}
}

// The kinds of errors that keep their identity on the way from the helper.
var errorKinds = map[string]error{"not_there": ErrNotThere, "no_signal": ErrNoSignal}

// KindOf names an error for the daemon.
func KindOf(err error) string {
	for kind, e := range errorKinds {
		if errors.Is(err, e) {
			return kind
		}
	}
	return ""
}

// remote is a session of the helper.
type remote struct {
	client *privileged.Client
	last   *diagnosis.Measured // nil: there is none
}

// OpenRemote opens a session in the helper at the other end of client, and owns it.
func OpenRemote(ctx context.Context, client *privileged.Client, o *Options) (Source, error) {
	r := &remote{client: client}
	return r, r.call(ctx, verbOpen, o, nil)
}

func (r *remote) call(ctx context.Context, verb string, in, out any) error {
	err := r.client.Call(ctx, verb, in, out)
	var remote *privileged.RemoteError
	if errors.As(err, &remote) {
		if known := errorKinds[remote.Kind]; known != nil {
			return errors.Join(known, err)
		}
	}
	return err
}

// Measure implements Source; one call at a time.
func (r *remote) Measure(ctx context.Context, how Reading) (*diagnosis.Measured, error) {
	how.Lazy = how.Lazy && r.last != nil
	var m measured
	err := r.call(ctx, verbMeasure, how, &m)
	if err == nil {
		err = m.fill(r.last)
	}
	if err != nil {
		r.last = nil
		return nil, err
	}
	r.last = m.Measured
	return m.Measured, nil
}

func (r *remote) Rewatch(ctx context.Context, w Watch, o bpf.Objectives) error {
	return r.call(ctx, verbRewatch, rewatchRequest{w, o}, nil)
}

// Close lets the helper detach everything; it ends when the connection does.
func (r *remote) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := r.call(ctx, verbClose, struct{}{}, nil)
	if errors.Is(err, privileged.ErrGone) {
		err = nil // it is what was wanted
	}
	return errors.Join(err, r.client.Close())
}
