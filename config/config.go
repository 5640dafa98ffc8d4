// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"time"
)

// DefaultPath is the file that is read where none is named. It may be missing.
const DefaultPath = "/etc/velo-agent/velo-agent.yaml"

// Config is what the daemon runs with. The meaning, default and range of each
// field are in the table of keys.go, and in docs/configuration.md.
type Config struct {
	Watch        Watch
	Listen       string // "": metrics and API are not served over TCP
	WebConfig    string // "": no TLS, no authentication
	Socket       Socket
	User         string
	Objectives   Objectives
	Probes       Probes
	Record       Record
	Plane        Plane
	Log          Log
	DrainTimeout time.Duration
}

// Watch says which listening ports are watched. The fields add up.
type Watch struct {
	Engines bool     // the ports of the serving engines found on the node
	Ports   []uint16 // in every network namespace
	Cgroups []string // the ports of the processes in these, as in /proc/PID/cgroup
}

// Socket is the Unix socket on which the verbs reach the daemon.
type Socket struct {
	Path  string
	Group string // "": root and the daemon's own user alone
}

// Objectives are what exchanges are held to.
type Objectives struct{ TTFT, Gap time.Duration }

// Probes says what is attached to the kernel.
type Probes struct {
	Enabled   bool
	Accept    string // exact or cheap
	Content   string // head or none
	Scheduler bool
	SendStart bool
}

// Record is the rolling store of snapshots.
type Record struct {
	Enabled  bool
	Dir      string
	Every    time.Duration
	Keep     time.Duration
	MaxBytes ByteSize
}

// Plane is the node of the response plane that the daemon hosts.
type Plane struct {
	Enabled   bool
	Listen    string // "": no TCP
	Advertise string // where peers reach Listen; "": as it listens
	Socket    string // "": no Unix socket
	Insecure  bool   // serve beyond this machine without TLS
	Discovery string // "": peers are registered by their applications

	TLSCert, TLSKey, TLSCA string   // all or none
	TLSAllow               []string // IDENTITY=INSTANCE, or IDENTITY=*

	Window    int
	SlotBytes ByteSize
	Linger    time.Duration
	Gather    time.Duration
	Heartbeat time.Duration
}

// Log says what is logged, and how.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// Default returns the configuration that holds without a file.
func Default() *Config {
	c := new(Config)
	for i := range keys {
		keys[i].set(c, keys[i].standard)
	}
	return c
}

// NeedsRestart returns the dotted keys that differ between the two and cannot
// change while the daemon runs, in the order of the table. All others can.
func NeedsRestart(old, new *Config) []string {
	var names []string
	for i := range keys {
		k := &keys[i]
		if k.restart && !reflect.DeepEqual(k.get(old), k.get(new)) {
			names = append(names, k.name)
		}
	}
	return names
}
