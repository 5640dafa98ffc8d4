// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// verdict is what is compared of a report.
type verdict struct {
	Schema  string
	WindowS float64 `json:"window_s"`
	Ports   []struct {
		Port      int
		Exchanges *float64
		TTFT      struct{ Count, P50, P90, P99, Max float64 }
		Gap       struct{ Count, P50, P99 float64 }
		Stages    map[string]struct {
			TTFT, Gap *struct{ Count, Sum, Share float64 }
		}
	}
	Findings []struct{ ID, Severity string }
}

// ids names the findings. Without that of the run delay: threads wait for a CPU at the
// edges of a window too, where two windows of one time differ and other tests run.
func (v *verdict) ids() (ids []string) {
	for _, f := range v.Findings {
		if f.ID != "cpu_starvation" {
			ids = append(ids, f.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// same compares everything that is not told in two windows of nearly one length.
func (v *verdict) same(o *verdict) error {
	if !slices.Equal(v.ids(), o.ids()) {
		return fmt.Errorf("the findings are %v and %v", v.ids(), o.ids())
	}
	if len(v.Ports) != 1 || len(o.Ports) != 1 {
		return fmt.Errorf("there are %d and %d ports", len(v.Ports), len(o.Ports))
	}
	p, q := v.Ports[0], o.Ports[0]
	if p.Port != q.Port || p.Exchanges == nil || q.Exchanges == nil || *p.Exchanges != *q.Exchanges || p.TTFT != q.TTFT || p.Gap != q.Gap {
		return fmt.Errorf("the port is %+v and %+v", p, q)
	}
	if len(p.Stages) != len(q.Stages) {
		return fmt.Errorf("the stages are %v and %v", p.Stages, q.Stages)
	}
	for name, s := range p.Stages {
		r := q.Stages[name]
		if (s.TTFT == nil) != (r.TTFT == nil) || s.TTFT != nil && math.Abs(s.TTFT.Share-r.TTFT.Share) > 1e-6 {
			return fmt.Errorf("stage %s of TTFT is %+v and %+v", name, s.TTFT, r.TTFT)
		}
		if (s.Gap == nil) != (r.Gap == nil) || s.Gap != nil && math.Abs(s.Gap.Share-r.Gap.Share) > 1e-6 {
			return fmt.Errorf("stage %s of gaps is %+v and %+v", name, s.Gap, r.Gap)
		}
	}
	return nil
}

// edge is longer than a snapshot's window and the time for which a reading serves:
// what lies so far inside a span is in it for all who look.
const edge = 2500 * time.Millisecond

// TestRecordVerdict: the record gives the verdict that was given then, over the
// daemon and from the folder; and tells a disturbed time from a quiet one.
func TestRecordVerdict(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}", s.port))
	const length = 2*edge + 3*time.Second
	span := func(load func()) (from time.Time, live *verdict) {
		from = time.Now()
		said := make(chan *verdict, 1)
		go func() { said <- d.diagnose(t, "--socket", d.Socket(), "--for", length.String()) }()
		time.Sleep(edge)
		load()
		took := time.Since(from)
		live = <-said
		if took > length-edge {
			t.Skipf("this machine is too busy: the exchanges ended %v after the beginning, and are to be within a window of %v", took, length)
		}
		time.Sleep(edge) // the record is written
		return from, live
	}
	quietFrom, quiet := span(func() { s.ask(t, 40) })
	badFrom, bad := span(func() {
		s.acceptEvery.Store(int64(40 * time.Millisecond))
		s.crowd(t, 1) // it is accepted without the sleep
		s.crowd(t, 40)
	})
	const finding = "accept_queue_wait"
	if slices.Contains(quiet.ids(), finding) || !slices.Contains(bad.ids(), finding) {
		t.Fatalf("live, the findings are %v and %v; %s is to be in the second alone", quiet.ids(), bad.ids(), finding)
	}
	look := func(where string, flags ...string) {
		t.Helper()
		for _, x := range []struct {
			name string
			from time.Time
			live *verdict
		}{{"quiet", quietFrom, quiet}, {"disturbed", badFrom, bad}} {
			got := d.diagnose(t, append(flags, "--at", x.from.Format(time.RFC3339Nano), "--for", length.String())...)
			if err := x.live.same(got); err != nil {
				t.Errorf("the %s span, then and %s: %v", x.name, where, err)
			}
		}
		out, said, code := velo(t, append(append([]string{"diagnose"}, flags...), "--json", "--for", length.String(),
			"--diff", quietFrom.Format(time.RFC3339Nano), badFrom.Format(time.RFC3339Nano))...)
		var diff struct {
			New  []struct{ ID string } `json:"new_findings"`
			Gone []struct{ ID string } `json:"gone_findings"`
		}
		if err := json.Unmarshal([]byte(out), &diff); err != nil {
			t.Fatalf("--diff %s ends with %d: %v: %s%s", where, code, err, out, said)
		}
		if !strings.Contains(fmt.Sprint(diff.New), finding) || strings.Contains(fmt.Sprint(diff.Gone), finding) {
			t.Errorf("--diff %s names as new %v, as gone %v", where, diff.New, diff.Gone)
		}
	}
	look("over the daemon", "--socket", d.Socket())
	d.stop(t)
	look("from the folder", "--record", d.Record())
}

// diagnose returns the verdict of a run with the flags.
func (d *daemon) diagnose(t *testing.T, flags ...string) *verdict {
	t.Helper()
	out, said, _ := velo(t, append([]string{"diagnose", "--json"}, flags...)...)
	v := &verdict{}
	if err := json.Unmarshal([]byte(out), v); err != nil || v.Schema != "velo-agent.report.v1" {
		t.Errorf("diagnose %v: %v: %s%s", flags, err, out, said)
	}
	return v
}

// TestShortWindow: a window shorter than the time for which a reading serves is not
// taken for the whole time.
func TestShortWindow(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	d := start(t, fmt.Sprintf("watch: {ports: [%d]}", s.port))
	s.ask(t, 7)
	d.becomes(t, 7, "velo_agent_exchanges_total", "port", s.label())
	time.Sleep(time.Second)
	for range 4 {
		v := d.diagnose(t, "--socket", d.Socket(), "--for", "300ms")
		if len(v.Ports) != 1 || v.Ports[0].Exchanges == nil || *v.Ports[0].Exchanges != 0 || v.WindowS == 0 || v.WindowS > 2 {
			t.Errorf("a window of %v s in which nothing happened has %+v", v.WindowS, v.Ports)
		}
	}
}

// TestWhoMayAsk: the socket's file lets everybody in, the daemon does not.
func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	d := start(t, "socket: {group: \"4321\"}")
	for _, c := range []struct {
		name string
		cred *syscall.Credential // nil: root
		want int
	}{
		{"root", nil, http.StatusOK},
		{"the daemon's user", &syscall.Credential{Uid: 65534, Gid: 65534}, http.StatusOK},
		{"another user", &syscall.Credential{Uid: 12345, Gid: 12345}, http.StatusForbidden},
		{"one of the group", &syscall.Credential{Uid: 12345, Gid: 4321}, http.StatusOK},
		{"another user of root's group", &syscall.Credential{Uid: 12345, Gid: 0}, http.StatusForbidden},
	} {
		for _, path := range []string{"/metrics", "/api/v1/report", "/api/v1/measured", "/-/reload"} {
			status := askAs(t, c.cred, d.Socket(), path)
			refused := status == http.StatusForbidden
			if refused != (c.want == http.StatusForbidden) {
				t.Errorf("%s asks for %s and is answered with %d", c.name, path, status)
			}
		}
	}
	if n := len(lines(d.said(), "configuration reloaded")); n != 3 {
		t.Errorf("there were %d reloads, not those of the three who may", n)
	}
}

// askAs asks over the socket as another user, in a process of its own.
func askAs(t *testing.T, cred *syscall.Credential, socket, path string) (status int) {
	t.Helper()
	method := http.MethodGet
	if path == "/-/reload" {
		method = http.MethodPost
	}
	out := playOnce(t, "ask", cred, method, socket, path)
	if _, err := fmt.Sscan(out, &status); err != nil {
		t.Fatalf("asking for %s: %v: %s", path, err, out)
	}
	return status
}

// askOverSocket is the other process: it prints the status of one answer.
func askOverSocket(method, socket, path string) error {
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequest(method, "http://daemon"+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = fmt.Println(resp.StatusCode)
	return err
}
