// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	runtimes "github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/config"
)

// listenAgain is how often a daemon whose port is in use tries to have it.
const listenAgain = 2 * time.Second

// lastReading is how long a stop waits for the last reading of the probes.
const lastReading = 500 * time.Millisecond

// Daemon serves metrics, reports and the record of one source until it is told to
// stop. It needs no right.
type Daemon struct {
	log      *slog.Logger
	level    *slog.LevelVar
	load     func() (*config.Config, error)
	readings *readings
	record   *keeper // nil: switched off
	netNS    uint64
	uid, gid int // who may ask over the Unix socket, besides root; gid -1: no group

	conf    atomic.Pointer[config.Config]
	loaded  atomic.Int64 // unix ns
	reloads sync.Mutex
	ok      atomic.Uint64
	refused atomic.Uint64
}

// Parts are what the daemon was started with.
type Parts struct {
	Config *config.Config
	Load   func() (*config.Config, error) // reads the configuration again
	Source Source
	TCP    net.Listener // nil: not served
	Unix   net.Listener // nil: not served
	Log    *slog.Logger
	Level  *slog.LevelVar
}

// WatchOf is what a configuration says is watched.
func WatchOf(c *config.Config) Watch {
	return Watch{Ports: c.Watch.Ports, Cgroups: c.Watch.Cgroups, Engines: c.Watch.Engines, AllowNone: true}
}

// ObjectivesOf is what a configuration holds exchanges to.
func ObjectivesOf(c *config.Config) bpf.Objectives {
	return bpf.Objectives{TTFT: c.Objectives.TTFT, Gap: c.Objectives.Gap}
}

// Run serves until ctx ends, then stops in order: the last window is written, the probes
// are detached, what carries traffic may end within drain_timeout. reload asks for the
// configuration to be read again.
func Run(ctx context.Context, p *Parts, reload <-chan os.Signal) error {
	reading, endReadings := context.WithCancel(context.Background())
	defer endReadings()
	d := &Daemon{
		log: p.Log, level: p.Level, load: p.Load, netNS: ownNetNS(), uid: os.Getuid(), gid: groupID(p.Config.Socket.Group, p.Log),
		readings: &readings{life: reading, source: p.Source, log: p.Log.With("component", "readings")},
		record:   newKeeper(p.Config, p.Log),
	}
	d.conf.Store(p.Config)
	d.loaded.Store(time.Now().UnixNano())

	registry := prometheus.NewRegistry()
	registry.MustRegister(runtimes.NewGoCollector(), runtimes.NewProcessCollector(runtimes.ProcessCollectorOpts{}))
	host := &planeHost{conf: &p.Config.Plane, log: p.Log.With("component", "plane")}
	page := newPage(collectors.New(d.snapshot, prometheus.Gatherers{valid(registry), host}).Each, d.log.With("component", "metrics"))
	loop, stopLoop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	kept := make(chan struct{})
	wg.Go(func() {
		defer close(kept)
		d.keepRecord(loop)
	})
	wg.Go(func() { d.watchdog(loop) })
	if p.Config.Plane.Enabled {
		wg.Go(func() { host.run(loop) })
	}

	failed := make(chan error, 2)
	var servers []*http.Server
	serve := func(h http.Handler, run func(*http.Server) error) {
		srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(d.log.With("component", "http").Handler(), slog.LevelDebug)}
		bound(srv)
		servers = append(servers, srv)
		wg.Go(func() {
			if err := run(srv); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	serveTCP := func(l net.Listener) {
		flags := &web.FlagConfig{WebConfigFile: &p.Config.WebConfig}
		serve(d.public(page), func(srv *http.Server) error {
			return web.ServeMultiple([]net.Listener{l}, srv, flags, d.log.With("component", "http"))
		})
	}
	var again <-chan time.Time // nil: there is nothing to try again
	if p.TCP != nil {
		serveTCP(p.TCP)
	} else if p.Config.Listen != "" {
		tick := time.NewTicker(listenAgain)
		defer tick.Stop()
		again = tick.C
	}
	if p.Unix != nil {
		serve(d.private(page), func(srv *http.Server) error { return srv.Serve(p.Unix) })
	}
	d.notify(sd.SdNotifyReady)
	d.log.Info("serving", "listen", p.Config.Listen, "socket", p.Config.Socket.Path, "user", d.uid)

	var err error
	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case err = <-failed:
			d.log.Error("a server ended", "error", err)
			running = false
		case <-reload:
			_ = d.Reload() // it says in the log what was wrong
		case <-again:
			l, err := listenTCP(ctx, p.Config.Listen)
			switch {
			case err == nil:
				again = nil
				serveTCP(l)
			case errors.Is(err, fs.ErrPermission): // it would be so for ever
				again = nil
				d.log.Error("metrics will not be served over TCP: without rights the daemon cannot take this port; "+
					"give listen a port above 1023, or free this one and restart the daemon", "listen", p.Config.Listen, "error", err)
			}
		}
	}
	d.notify(sd.SdNotifyStopping)
	stopLoop()
	// A helper that does not answer is given up then, and holds nothing up.
	defer time.AfterFunc(lastReading, endReadings).Stop()
	select {
	case <-kept:
	case <-reading.Done():
	}
	err = errors.Join(err, p.Source.Close())
	d.log.Info("probes detached")
	err = errors.Join(err, d.shutDown(host, servers, &wg))
	if p.Unix != nil {
		_ = os.Remove(p.Config.Socket.Path) // so that nobody waits for an answer
	}
	return err
}

// shutDown lets streams and requests under way end, for up to drain_timeout. Metrics
// are served as long as there are streams.
func (d *Daemon) shutDown(host *planeHost, servers []*http.Server, wg *sync.WaitGroup) error {
	ctx, cancel := context.WithTimeout(context.Background(), d.conf.Load().DrainTimeout)
	defer cancel()
	errs := []error{host.stop(ctx)}
	for _, srv := range servers {
		if err := srv.Shutdown(ctx); err != nil {
			errs = append(errs, srv.Close())
			d.log.Warn("requests were cut off", "error", err)
		}
	}
	wg.Wait()
	if d.record != nil {
		errs = append(errs, d.record.close())
	}
	return errors.Join(errs...)
}

// notify tells systemd; there may be none.
func (d *Daemon) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		d.log.Warn("telling systemd", "state", state, "error", err)
	}
}

// watchdog tells systemd that the daemon lives, as often as it wants to hear it, while
// readings can be taken.
func (d *Daemon) watchdog(ctx context.Context) {
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return
	}
	for !wait(ctx, every/3) {
		d.readings.idle() // one that hangs keeps it
		d.notify(sd.SdNotifyWatchdog)
	}
}

// keepRecord closes a window every so often and writes it down; when ctx ends, the one
// that is under way.
func (d *Daemon) keepRecord(ctx context.Context) {
	for ended := false; !ended; {
		ended = wait(ctx, d.conf.Load().Record.Every)
		if w, ok := d.readings.closeWindow(); ok && d.record != nil {
			d.record.keep(w)
		}
	}
}

// Reload reads the configuration again and puts it in force as a whole, or not at all.
func (d *Daemon) Reload() error {
	d.reloads.Lock()
	defer d.reloads.Unlock()
	d.notify(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", sd.SdNotifyReloading, monotonic().Microseconds()))
	defer d.notify(sd.SdNotifyReady)
	err := d.reload()
	if err != nil {
		d.refused.Add(1)
		d.log.Error("the configuration was not reloaded; the one before stays in force", "error", err)
		return err
	}
	d.ok.Add(1)
	d.loaded.Store(time.Now().UnixNano())
	d.log.Info("configuration reloaded")
	return nil
}

func (d *Daemon) reload() error {
	next, err := d.load()
	if err != nil {
		return err
	}
	now := d.conf.Load()
	if names := config.NeedsRestart(now, next); len(names) > 0 {
		return fmt.Errorf("%s: changes only at a restart", strings.Join(names, ", "))
	}
	if err := d.readings.rewatch(WatchOf(next), ObjectivesOf(next)); err != nil {
		return fmt.Errorf("changing what is watched: %w", err)
	}
	d.level.Set(LevelOf(next))
	d.conf.Store(next)
	return nil
}

// LevelOf is the log level of a configuration.
func LevelOf(c *config.Config) slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(c.Log.Level)) // it was validated
	return l
}

// snapshot is what a scrape sees.
func (d *Daemon) snapshot() *collectors.Snapshot {
	c := d.conf.Load()
	m, taken, err := d.readings.fresh()
	x := &collectors.Snapshot{
		Measured: m, Taken: taken, OwnNetNS: d.netNS,
		Daemon: collectors.Daemon{
			Version: Version, RSSBytes: ownRSS(), CPU: ownCPU(), HelperUp: err == nil,
			TTFTObjective: c.Objectives.TTFT, GapObjective: c.Objectives.Gap,
			ReloadsOK: d.ok.Load(), ReloadsRefused: d.refused.Load(), ConfigLoaded: time.Unix(0, d.loaded.Load()),
		},
	}
	if d.record != nil {
		x.Daemon.Record = d.record.state()
	}
	if rep := d.readings.minute(); rep != nil {
		x.Findings = rep.Findings
	}
	return x
}

func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// groupID looks a group up by name or number; -1: none.
func groupID(name string, log *slog.Logger) int {
	if name == "" {
		return -1
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n
	}
	id, err := lookupGroup(name)
	if err != nil {
		log.Error("the group of the configuration is not there: root alone may ask over the socket", "group", name, "error", err)
		return -1
	}
	return id
}

// valid leaves out the one family of Go's that OpenMetrics takes for the counter of the
// same name; go_memstats_heap_alloc_bytes is the same figure.
func valid(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		list, err := g.Gather()
		return slices.DeleteFunc(list, func(f *dto.MetricFamily) bool { return f.GetName() == "go_memstats_alloc_bytes" }), err
	})
}
