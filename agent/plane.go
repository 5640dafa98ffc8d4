// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/config"
	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/transport"
)

// PlaneOptions is the node that a configuration describes.
func PlaneOptions(c *config.Plane) (plane.Options, error) {
	o := plane.Options{
		Transport: transport.Options{Insecure: c.Insecure}, Heartbeat: c.Heartbeat,
		Mux: mux.Options{Window: uint32(c.Window), SlotBytes: uint32(c.SlotBytes), Flush: mux.Flush{Linger: c.Linger, Gather: c.Gather}},
	}
	if c.Gather == 0 {
		o.Mux.Flush.Gather = -1
	}
	if c.Listen != "" {
		o.Listen = append(o.Listen, messenger.Listen{Network: "tcp", Address: c.Listen, Advertise: c.Advertise})
	}
	if c.Socket != "" {
		o.Listen = append(o.Listen, messenger.Listen{Network: "unix", Address: c.Socket})
	}
	if c.Discovery != "" {
		o.Discovery = discovery.NewFile(c.Discovery)
	}
	if c.TLSCert == "" {
		return o, nil
	}
	files := transport.TLSFiles{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA, Allow: map[string][]string{}}
	for _, a := range c.TLSAllow {
		i := strings.LastIndexByte(a, '=') // the configuration was checked
		files.Allow[a[:i]] = append(files.Allow[a[:i]], a[i+1:])
	}
	var err error
	o.Transport.TLS, err = files.Load()
	return o, err
}

// planeHost runs the plane's node of a daemon. A node that cannot start (its port is
// in use, a certificate cannot be read) is tried again.
type planeHost struct {
	log  *slog.Logger
	conf *config.Plane
	node atomic.Pointer[hosted] // nil: it does not run
}

type hosted struct {
	*plane.Node
	metrics *prometheus.Registry
	entry   *discovery.Guard // nil: it is in no discovery
}

// run keeps trying until the node runs or ctx ends.
func (h *planeHost) run(ctx context.Context) {
	told := ""
	for {
		node, err := h.start()
		if err == nil {
			h.node.Store(node)
			h.log.Info("plane serving", "listen", h.conf.Listen, "socket", h.conf.Socket, "worker", uint64(node.Worker()))
			return
		}
		if text := err.Error(); text != told {
			told = text
			h.log.Error("the plane does not run; trying again", "error", err)
		}
		if wait(ctx, listenAgain) {
			return
		}
	}
}

func (h *planeHost) start() (*hosted, error) {
	o, err := PlaneOptions(h.conf)
	if err != nil {
		return nil, err
	}
	out := &hosted{metrics: prometheus.NewRegistry()}
	o.Metrics, o.Log = out.metrics, h.log
	if out.Node, err = plane.New(o); err != nil {
		return nil, err
	}
	if f, ok := o.Discovery.(*discovery.File); ok {
		if out.entry, err = f.Register(out.PeerInfo()); err != nil {
			return nil, fmt.Errorf("registering the node: %w", errors.Join(err, out.Node.Close()))
		}
	}
	return out, nil
}

// Gather implements prometheus.Gatherer.
func (h *planeHost) Gather() ([]*dto.MetricFamily, error) {
	if n := h.node.Load(); n != nil {
		return n.metrics.Gather()
	}
	return nil, nil
}

// stop lets streams end until ctx does, and ends the rest.
func (h *planeHost) stop(ctx context.Context) error {
	n := h.node.Load()
	if n == nil {
		return nil
	}
	if n.entry != nil {
		if err := n.entry.Unregister(); err != nil {
			h.log.Warn("leaving the discovery", "error", err)
		}
	}
	begun := time.Now()
	if err := n.Drain(ctx); err != nil {
		h.log.Warn("streams were cut off", "error", err)
	}
	err := n.Close()
	h.log.Info("plane stopped", "after", time.Since(begun).Round(time.Millisecond))
	return err
}
