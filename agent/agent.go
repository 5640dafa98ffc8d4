// SPDX-License-Identifier: Apache-2.0

// Package agent is the composition root: it turns options into attached probes,
// running loops and measured facts, and stops them in order.
package agent

import (
	"errors"
	"log/slog"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/preflight"
)

// Version is set when the binary is built.
var Version = "dev"

// What can go wrong before anything is measured.
var (
	// ErrNotThere: no such port, process or cgroup, or no engine on the node.
	ErrNotThere = errors.New("not there")
	// ErrNoSignal: a signal that is needed has no rung on this node.
	ErrNoSignal = errors.New("a signal that is needed could not be had")
)

// Watch says which listening ports are watched. Several fields add up; where
// none names anything, the ports of the serving engines that are found.
type Watch struct {
	Ports   []uint16 // in every network namespace
	PIDs    []int    // the ports that these processes hold
	Cgroups []string // the ports that the processes of these cgroups hold
	// Engines adds the ports of the serving engines that are found.
	Engines bool
	// AllowNone: it is no error that none of this is there yet.
	AllowNone bool
	// BothEnds watches the clients' ends of the connections on this node too.
	BothEnds bool
}

func (w Watch) empty() bool { return len(w.Ports)+len(w.PIDs)+len(w.Cgroups) == 0 }

// Options are what a session is opened with. What has a name in JSON a daemon may ask of
// its helper.
type Options struct {
	Watch Watch `json:"watch"`
	// ExactAccept watches accept at the return of every system call where
	// nothing better is there, which slows all system calls of the node.
	ExactAccept bool `json:"exact_accept,omitempty"`
	// NoContent never looks at the first bytes of a write; what a write is,
	// is then told by its length.
	NoContent bool `json:"no_content,omitempty"`
	// NoSendStart leaves out the hook at the start of a send: cheaper, and a
	// blocked write's time is then engine.
	NoSendStart bool `json:"no_send_start,omitempty"`
	// NoSched leaves out the scheduler's hooks.
	NoSched bool `json:"no_sched,omitempty"`
	// NoTrace keeps every exchange in the counted tier.
	NoTrace bool `json:"-"`
	// TraceAll traces every exchange, at any rate, and every gap, however short.
	TraceAll bool `json:"-"`
	// Only forces the rung of a signal, by name.
	Only map[string]string `json:"-"`
	// Objectives are what exchanges are held to.
	Objectives bpf.Objectives `json:"objectives"`
	// SampleCosts switches the kernel's run statistics on for a second in sixty.
	SampleCosts bool `json:"-"`
	// OnTrace is called for each record of the traced tier, one at a time. It
	// must not call the session.
	OnTrace func(*attribution.Trace) `json:"-"`
	// NoBPF does as on a kernel that has none.
	NoBPF bool `json:"no_bpf,omitempty"`

	Host preflight.Host `json:"-"`
	Log  *slog.Logger   `json:"-"`
}

func (o *Options) tracing() bpf.Tracing {
	if o.NoTrace {
		return bpf.Tracing{}
	}
	return bpf.Tracing{Sample: 1, Gap: firstGapThreshold, AllGaps: o.TraceAll}
}
