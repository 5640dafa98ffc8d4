// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/diagnosis"
)

const (
	defaultSpan = time.Minute
	longestSpan = 24 * time.Hour
)

// public is what everyone who reaches the port may ask.
func (d *Daemon) public(metrics http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", d.ready)
	mux.HandleFunc("GET /api/v1/report", d.serveReport)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "velo-agent: /metrics, /healthz, /readyz, /api/v1/report?for=60s or ?at=2006-01-02T15:04:05Z&for=5m")
	})
	return mux
}

// private is what is asked over the Unix socket: also what changes the daemon, and
// the figures that verbs on this node compute from.
func (d *Daemon) private(metrics http.Handler) http.Handler {
	mux := d.public(metrics)
	mux.HandleFunc("GET /api/v1/measured", func(w http.ResponseWriter, _ *http.Request) {
		m, err := d.readings.now()
		if err != nil || m == nil {
			http.Error(w, fmt.Sprintf("no figures: %v", err), http.StatusServiceUnavailable)
			return
		}
		writeJSON(w, m)
	})
	mux.HandleFunc("GET /api/v1/window", func(w http.ResponseWriter, r *http.Request) {
		if rec, ok := d.span(w, r); ok {
			writeJSON(w, rec)
		}
	})
	mux.HandleFunc("POST /-/reload", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.Reload(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, "reloaded")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := d.admit(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ready is yes while probes answer: without them there are metrics still, but not
// those that anyone waits for.
func (d *Daemon) ready(w http.ResponseWriter, _ *http.Request) {
	if m, _, err := d.readings.fresh(); err == nil && m != nil {
		fmt.Fprintln(w, "ok")
		return
	}
	http.Error(w, "the probes do not answer: see velo_agent_helper_up and the log", http.StatusServiceUnavailable)
}

// serveReport answers ?for= with the report of the span that ends now, and ?at= with
// that of the one that begins there.
func (d *Daemon) serveReport(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if !q.Has("at") && !q.Has("for") {
		if rep := d.readings.minute(); rep != nil {
			w.Header().Set("Content-Type", "application/json")
			_ = diagnosis.WriteJSON(w, rep)
			return
		}
		http.Error(w, "no window is over yet: ask again in some seconds", http.StatusServiceUnavailable)
		return
	}
	if rec, ok := d.span(w, r); ok {
		w.Header().Set("Content-Type", "application/json")
		_ = diagnosis.WriteJSON(w, diagnosis.Build(rec.Measured))
	}
}

// span reads what the request asks for from the record, or answers why not.
func (d *Daemon) span(w http.ResponseWriter, r *http.Request) (*Recorded, bool) {
	q := r.URL.Query()
	length := defaultSpan
	if v := q.Get("for"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil || length <= 0 || length > longestSpan {
			http.Error(w, fmt.Sprintf("for=%.40q: give a time above 0 and up to %v, like 5m", v, longestSpan), http.StatusBadRequest)
			return nil, false
		}
	}
	from := time.Now().Add(-length)
	if v := q.Get("at"); v != "" {
		var err error
		if from, err = time.Parse(time.RFC3339Nano, v); err != nil {
			http.Error(w, fmt.Sprintf("at=%.40q: give a time like 2006-01-02T15:04:05Z", v), http.StatusBadRequest)
			return nil, false
		}
	}
	if d.record == nil {
		http.Error(w, "there is no record: it is switched off (record.enabled)", http.StatusNotFound)
		return nil, false
	}
	store := d.record.store.Load()
	if store == nil {
		http.Error(w, "there is no record: it could not be opened, which is tried again with each window; see the log", http.StatusNotFound)
		return nil, false
	}
	rec, err := readRecord(store.Range, from, from.Add(length))
	switch {
	case errors.Is(err, ErrNotThere):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		d.log.Error("reading the record", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	return rec, err == nil
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client went away, or the type is wrong, which tests show
}

// admit lets in root, the daemon's own user and who is in the group of the
// configuration: by what the kernel says of the peer, not by the socket's mode.
func (d *Daemon) admit(r *http.Request) error {
	conn, ok := r.Context().Value(connKey{}).(*net.UnixConn)
	if !ok {
		return errors.New("who asks is not known")
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil || err != nil {
		return fmt.Errorf("asking who asks: %w", errors.Join(cerr, err))
	}
	if cred.Uid == 0 || int(cred.Uid) == d.uid || d.gid >= 0 && inGroup(cred, d.gid) {
		return nil
	}
	return fmt.Errorf("user %d may not ask: be root, or in the group that the configuration names (socket.group)", cred.Uid)
}
