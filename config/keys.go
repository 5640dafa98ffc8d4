// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"strings"
	"time"
)

// key is one row of the table: everything that is known of a key, in one place.
type key struct {
	name     string            // dotted
	field    func(*Config) any // a pointer to its field
	standard any               // what holds where nothing is set
	kind     kind              // how it is written, and what it may be
	restart  bool              // cannot change while the daemon runs
	help     string
}

func (k *key) get(c *Config) any    { return reflect.ValueOf(k.field(c)).Elem().Interface() }
func (k *key) set(c *Config, v any) { reflect.ValueOf(k.field(c)).Elem().Set(reflect.ValueOf(v)) }

// differs says whether c has another value than the default.
func (k *key) differs(c *Config) bool { return !reflect.DeepEqual(k.get(c), k.standard) }

// split returns the section ("" for none) and the key's own name in it.
func (k *key) split() (section, own string) {
	section, own, inside := strings.Cut(k.name, ".")
	if !inside {
		return "", section
	}
	return section, own
}

const mostItems = 1024

// keys is the table, in the order in which it is shown.
var keys = []key{
	{
		name: "watch.engines", field: func(c *Config) any { return &c.Watch.Engines }, standard: true, kind: single{onOff{}},
		help: "Watch the ports of the serving engines that are found on the node (vLLM, SGLang, TGI, llama.cpp, Ollama, Triton, Dynamo).",
	},
	{
		name: "watch.ports", field: func(c *Config) any { return &c.Watch.Ports }, standard: []uint16(nil), kind: list[uint16]{port{}},
		help: "Listening TCP ports that are watched too, in every network namespace.",
	},
	{
		name: "watch.cgroups", field: func(c *Config) any { return &c.Watch.Cgroups }, standard: []string(nil), kind: list[string]{cgroup},
		help: "Cgroups, as in /proc/PID/cgroup: the ports that their processes listen on are watched too.",
	},
	{
		name: "listen", field: func(c *Config) any { return &c.Listen }, standard: ":9766", kind: single{address}, restart: true,
		help: "Where metrics and the API are served over HTTP. Empty: nowhere; the Unix socket stays.",
	},
	{
		name: "web_config", field: func(c *Config) any { return &c.WebConfig }, standard: "", kind: single{optionalFile}, restart: true,
		help: "A web configuration file of the Prometheus exporter-toolkit, for TLS and basic authentication. Empty: neither.",
	},
	{
		name: "socket.path", field: func(c *Config) any { return &c.Socket.Path }, standard: "/run/velo-agent/agent.sock", kind: single{socketPath}, restart: true,
		help: "The Unix socket on which `velo-agent diagnose` and `velo-agent top` reach the daemon.",
	},
	{
		name: "socket.group", field: func(c *Config) any { return &c.Socket.Group }, standard: "", kind: single{group}, restart: true,
		help: "The group whose members may use the socket, by name or number. Empty: root and the daemon's own user alone.",
	},
	{
		name: "user", field: func(c *Config) any { return &c.User }, standard: "nobody", kind: single{user}, restart: true,
		help: "The user that the daemon becomes when it is started as root, by name or number.",
	},
	{
		name: "objectives.ttft", field: func(c *Config) any { return &c.Objectives.TTFT }, standard: 2 * time.Second, kind: single{span{time.Millisecond, time.Hour}},
		help: "The time to first token that every exchange should keep. Those that do not are counted by the stage that took most of it.",
	},
	{
		name: "objectives.gap", field: func(c *Config) any { return &c.Objectives.Gap }, standard: 200 * time.Millisecond, kind: single{span{time.Millisecond, time.Hour}},
		help: "The same for the longest gap between two tokens of an exchange.",
	},
	{
		name: "probes.enabled", field: func(c *Config) any { return &c.Probes.Enabled }, standard: true, kind: single{onOff{}}, restart: true,
		help: "Attach the eBPF probes. Without them there are listeners, queues and host facts, and no stages.",
	},
	{
		name: "probes.accept", field: func(c *Config) any { return &c.Probes.Accept }, standard: "cheap", kind: single{choice{"exact", "cheap"}}, restart: true,
		help: "exact: see each accept, which slows all system calls where the kernel refuses fexit. cheap: bound it.",
	},
	{
		name: "probes.content", field: func(c *Config) any { return &c.Probes.Content }, standard: "head", kind: single{choice{"head", "none"}}, restart: true,
		help: "head: look at the first bytes of first writes, in the kernel, to tell headers from tokens. none: never.",
	},
	{
		name: "probes.scheduler", field: func(c *Config) any { return &c.Probes.Scheduler }, standard: true, kind: single{onOff{}}, restart: true,
		help: "Attach the scheduler's hooks, which tell how long a woken thread waited for a CPU.",
	},
	{
		name: "probes.send_start", field: func(c *Config) any { return &c.Probes.SendStart }, standard: true, kind: single{onOff{}}, restart: true,
		help: "Attach the hook at the start of a send. Without it an exchange costs less, and the time of a blocked write counts as engine.",
	},
	{
		name: "record.enabled", field: func(c *Config) any { return &c.Record.Enabled }, standard: true, kind: single{onOff{}}, restart: true,
		help: "Keep the record: snapshots of the figures, for `velo-agent diagnose --at`. It holds no content of traffic.",
	},
	{
		name: "record.dir", field: func(c *Config) any { return &c.Record.Dir }, standard: "/var/lib/velo-agent/record", kind: single{directory}, restart: true,
		help: "The directory of the record.",
	},
	{
		name: "record.every", field: func(c *Config) any { return &c.Record.Every }, standard: 10 * time.Second, kind: single{span{time.Second, time.Hour}},
		help: "The time from one snapshot to the next.",
	},
	{
		name: "record.keep", field: func(c *Config) any { return &c.Record.Keep }, standard: 24 * time.Hour, kind: single{span{time.Minute, 31 * 24 * time.Hour}}, restart: true,
		help: "How long snapshots are kept.",
	},
	{
		name: "record.max_bytes", field: func(c *Config) any { return &c.Record.MaxBytes }, standard: 256 * MiB, kind: single{size{MiB, TiB}}, restart: true,
		help: "The most that the record may take on disk. The oldest snapshots go first.",
	},
	{
		name: "plane.enabled", field: func(c *Config) any { return &c.Plane.Enabled }, standard: false, kind: single{onOff{}}, restart: true,
		help: "Host a node of the response plane: streams of tokens from workers to frontends, on velo's wire protocol.",
	},
	{
		name: "plane.listen", field: func(c *Config) any { return &c.Plane.Listen }, standard: "127.0.0.1:9767", kind: single{address}, restart: true,
		help: "Where the node listens for its peers over TCP. Empty: nowhere; plane.socket must be set then.",
	},
	{
		name: "plane.advertise", field: func(c *Config) any { return &c.Plane.Advertise }, standard: "", kind: single{reachable}, restart: true,
		help: "The IP address and port by which peers reach plane.listen, where a port mapping or NAT is between. Empty: as it listens.",
	},
	{
		name: "plane.socket", field: func(c *Config) any { return &c.Plane.Socket }, standard: "", kind: single{optionalFile}, restart: true,
		help: "A Unix socket for peers on this machine. Empty: none.",
	},
	{
		name: "plane.insecure", field: func(c *Config) any { return &c.Plane.Insecure }, standard: false, kind: single{onOff{}}, restart: true,
		help: "Listen beyond this machine without TLS. Without it an address that is not loopback needs plane.tls_cert.",
	},
	{
		name: "plane.discovery", field: func(c *Config) any { return &c.Plane.Discovery }, standard: "", kind: single{optionalFile}, restart: true,
		help: "The file of velo's filesystem discovery, in which the node registers itself and finds its peers. Empty: none.",
	},
	{
		name: "plane.tls_cert", field: func(c *Config) any { return &c.Plane.TLSCert }, standard: "", kind: single{optionalFile}, restart: true,
		help: "The node's certificate (PEM), for mutual TLS 1.3 with its peers. Empty: no TLS.",
	},
	{
		name: "plane.tls_key", field: func(c *Config) any { return &c.Plane.TLSKey }, standard: "", kind: single{optionalFile}, restart: true,
		help: "The key of plane.tls_cert (PEM).",
	},
	{
		name: "plane.tls_ca", field: func(c *Config) any { return &c.Plane.TLSCA }, standard: "", kind: single{optionalFile}, restart: true,
		help: "The certificates (PEM) of the authority that signs the certificates of peers.",
	},
	{
		name: "plane.tls_allow", field: func(c *Config) any { return &c.Plane.TLSAllow }, standard: []string(nil), kind: list[string]{identity}, restart: true,
		help: "Which peer may be which instance, as IDENTITY=INSTANCE: a URI, DNS name or common name of its certificate, and a UUID or * for any.",
	},
	{
		name: "plane.window", field: func(c *Config) any { return &c.Plane.Window }, standard: 32, kind: single{number{1, 65535}}, restart: true,
		help: "The records of one stream that may be on the way to a consumer that has not read them.",
	},
	{
		name: "plane.slot_bytes", field: func(c *Config) any { return &c.Plane.SlotBytes }, standard: MiB, kind: single{size{KiB, GiB}}, restart: true,
		help: "The bytes of one stream that may wait for its consumer before its sender gets no more credit.",
	},
	{
		name: "plane.linger", field: func(c *Config) any { return &c.Plane.Linger }, standard: time.Duration(0), kind: single{span{0, 100 * time.Millisecond}}, restart: true,
		help: "How long a record may wait for company before it is written. 0: it is written as soon as the connection can, but for plane.gather.",
	},
	{
		name: "plane.gather", field: func(c *Config) any { return &c.Plane.Gather }, standard: 2 * time.Millisecond, kind: single{span{0, 100 * time.Millisecond}}, restart: true,
		help: "How long after a write the next records to a peer may wait where many producers send thousands a second, one by one. 0: never; plane.linger takes its place.",
	},
	{
		name: "plane.heartbeat", field: func(c *Config) any { return &c.Plane.Heartbeat }, standard: 5 * time.Second, kind: single{span{200 * time.Millisecond, time.Minute}}, restart: true,
		help: "How often senders to this node show that they live while they have nothing to send.",
	},
	{
		name: "log.level", field: func(c *Config) any { return &c.Log.Level }, standard: "info", kind: single{choice{"debug", "info", "warn", "error"}},
		help: "The least severity that is logged.",
	},
	{
		name: "log.format", field: func(c *Config) any { return &c.Log.Format }, standard: "text", kind: single{choice{"text", "json"}}, restart: true,
		help: "How lines of the log are written.",
	},
	{
		name: "drain_timeout", field: func(c *Config) any { return &c.DrainTimeout }, standard: 30 * time.Second, kind: single{span{0, time.Hour}},
		help: "How long a stop waits for requests that are being served. A second SIGTERM ends at once.",
	},
}

// sections are the help texts of what groups keys.
var sections = map[string]string{
	"watch":      "What is watched. The keys add up.",
	"socket":     "The Unix socket of the daemon.",
	"objectives": "What exchanges are held to.",
	"probes":     "What is attached to the kernel.",
	"record":     "The record of the last day.",
	"plane":      "The node of the response plane that the daemon hosts.",
	"log":        "The daemon's own log, on standard error.",
}

// keyNamed returns the row of a dotted name, or nil.
func keyNamed(name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// namesIn returns the names known in a section, or at the top ("").
func namesIn(section string) []string {
	var names []string
	for i := range keys {
		in, own := keys[i].split()
		switch {
		case in == section:
			names = append(names, own)
		case section == "" && (len(names) == 0 || names[len(names)-1] != in):
			names = append(names, in)
		}
	}
	return names
}
