// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

// TestReloadUnderLoad: a hundred reloads that change ports and objectives lose no
// exchange of the port that stays, and leave nothing behind.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	stays, odd, even := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
	settings := func(i int) string {
		other := even
		if i%2 == 1 {
			other = odd
		}
		return fmt.Sprintf("watch: {ports: [%d, %d]}\nobjectives: {ttft: %dms, gap: %dms}", stays.port, other.port, 100+i%2, 20+i%2)
	}
	d := start(t, settings(0))
	reloads := 100
	if testing.Short() {
		reloads = 40
	}

	// Clients on connections that stay and on new ones, and a scraper.
	var made atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	load := func(pause time.Duration, f func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	kept := client(t, "tcp", stays.address())
	load(5*time.Millisecond, func() error { made.Add(1); return askOnce(kept) })
	load(10*time.Millisecond, func() error {
		fresh := client(t, "tcp", stays.address())
		defer fresh.CloseIdleConnections()
		made.Add(1)
		return askOnce(fresh)
	})
	highest := 0.0
	load(50*time.Millisecond, func() error {
		p, err := d.metrics()
		if err != nil {
			return err
		}
		n, ok := p.value("velo_agent_exchanges_total", "port", stays.label())
		if !ok || n < highest {
			return fmt.Errorf("the exchanges went from %v to %v (there: %v)", highest, n, ok)
		}
		highest = n
		return nil
	})

	helper := d.helper(t)
	var before, helperBefore int
	for i := 1; i <= reloads; i++ {
		d.configure(t, settings(i))
		if i%2 == 0 {
			d.signal(t, unix.SIGHUP)
		} else if status, body, err := d.reload(); err != nil || status != http.StatusOK {
			t.Fatalf("reload %d: %d %s, %v", i, status, body, err)
		}
		d.reloaded(t, i)
		if i == 4 { // all that is made once is there
			before, helperBefore = descriptors(t, d.PID), descriptors(t, helper)
		}
	}
	close(stop)
	wg.Wait()
	d.becomes(t, float64(made.Load()), "velo_agent_exchanges_total", "port", stays.label())
	d.becomes(t, 0, "velo_agent_config_reloads_total", "result", "refused")
	p, err := d.metrics()
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := p.value("velo_agent_objective_seconds", "objective", "ttft"); !ok || v != 0.1+0.001*float64(reloads%2) {
		t.Errorf("the objective is %v", v)
	}
	for name, n := range p["velo_agent_lost_total"].GetMetric() {
		if n.GetCounter().GetValue() > 0 {
			t.Errorf("lost: %v %v", name, n)
		}
	}
	eventually(t, "descriptors and goroutines as before", patience, func() error {
		d.tcp.CloseIdleConnections()
		now, helperNow := descriptors(t, d.PID), descriptors(t, helper)
		if now > before+slack || helperNow > helperBefore+slack {
			return fmt.Errorf("the daemon has %d descriptors, before %d; the helper %d, before %d", now, before, helperNow, helperBefore)
		}
		if n := d.now(t, "go_goroutines"); n > 40 {
			return fmt.Errorf("%v goroutines", n)
		}
		return nil
	})
	d.stop(t)
}

// reloaded waits until n reloads are done.
func (d *daemon) reloaded(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("reload %d", n), patience, func() error {
		if len(lines(d.said(), "configuration reloaded")) < n {
			return errors.New("the log does not say so")
		}
		return nil
	})
}

// TestReloadRefused: a bad file changes nothing, and the answer says what is wrong
// where.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	s, other := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
	good := fmt.Sprintf("watch: {ports: [%d]}\n", s.port)
	d := start(t, good)
	refused := 0
	for _, c := range []struct {
		name, settings string
		says           []string
	}{
		{"no YAML", "watch: [", []string{live.DropIn + ":1"}},
		{"an unknown key", fmt.Sprintf("watch:\n  ports: [%d]\n  portz: [1]\n", other.port), []string{live.DropIn + ":3", "portz", "ports"}},
		{"out of range", fmt.Sprintf("watch: {ports: [%d]}\n\nobjectives:\n  ttft: -1s\n", other.port), []string{live.DropIn + ":4", "ttft"}},
		{"two problems", "watch:\n  ports: [70000]\nlog:\n  level: loud\n", []string{live.DropIn + ":2", live.DropIn + ":4"}},
		{"needs a restart", fmt.Sprintf("watch: {ports: [%d]}\nlisten: 127.0.0.1:1\n", other.port), []string{"listen", "restart"}},
		{"need a restart", fmt.Sprintf("watch: {ports: [%d]}\nrecord: {dir: /nowhere}\nuser: \"4242\"\nsocket: {group: root}\n", other.port), []string{"record.dir", "user", "socket.group", "restart"}},
	} {
		d.configure(t, c.settings)
		status, body, err := d.reload()
		if err != nil || status != http.StatusBadRequest {
			t.Errorf("%s is answered with %d %s, %v", c.name, status, body, err)
		}
		for _, want := range c.says {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the answer does not say %q: %s", c.name, want, body)
			}
		}
		refused++
		d.becomes(t, float64(refused), "velo_agent_config_reloads_total", "result", "refused")
	}
	d.signal(t, unix.SIGHUP)
	d.becomes(t, float64(refused+1), "velo_agent_config_reloads_total", "result", "refused")
	s.ask(t, 3)
	d.becomes(t, 3, "velo_agent_exchanges_total", "port", s.label())
	d.becomes(t, 1, "velo_agent_watched_ports")
	d.becomes(t, 0, "velo_agent_config_reloads_total", "result", "ok")

	d.configure(t, good)
	if status, body, err := d.reload(); err != nil || status != http.StatusOK {
		t.Errorf("the good file again: %d %s, %v", status, body, err)
	}
	d.becomes(t, 3, "velo_agent_exchanges_total", "port", s.label())
}

// TestReloadKeepsItsWord: what a reload takes is in force, what cannot be is refused.
func TestReloadKeepsItsWord(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	good := fmt.Sprintf("watch: {ports: [%d]}\n", s.port)
	d := start(t, good)
	for _, c := range []struct{ key, settings string }{
		{"probes.content", "probes: {content: none}"},
		{"probes.accept", "probes: {accept: exact}"},
		{"probes.scheduler", "probes: {scheduler: false}"},
		{"probes.send_start", "probes: {send_start: false}"},
		{"record.enabled", "record: {enabled: false}"},
		{"record.keep", "record: {keep: 1h}"},
		{"record.max_bytes", "record: {max_bytes: 2MiB}"},
		{"log.format", "log: {format: json}"},
	} {
		d.configure(t, good+c.settings)
		if status, body, err := d.reload(); err != nil || status != http.StatusBadRequest || !strings.Contains(body, c.key) {
			t.Errorf("%s changes nothing until a restart, and the reload says %d %s, %v", c.key, status, body, err)
		}
	}
	d.configure(t, good+"log: {level: debug}")
	if status, body, err := d.reload(); err != nil || status != http.StatusOK {
		t.Errorf("log.level: %d %s, %v", status, body, err)
	}
}
