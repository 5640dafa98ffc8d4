// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
)

const ms = time.Millisecond

func samples(n int, d time.Duration) *attribution.Histogram {
	h := &attribution.Histogram{}
	for range n {
		h.Add(d)
	}
	return h
}

// served is a port that answered n exchanges, whose accept queue took waited of each.
func served(port uint16, process string, n int, waited, engine time.Duration) diagnosis.Port {
	p := diagnosis.Port{
		Port: port, Process: process, NetNS: 1, Addresses: []string{"0.0.0.0"}, PID: 4000 + int(port)%100,
		Connections: new(uint64(n / 2)), Exchanges: new(uint64(n)),
		TTFT: samples(n, waited+engine), Gap: samples(10*n, engine/10),
		Accept: &diagnosis.Accept{Depth: uint64(n % 50), Limit: 128, Somaxconn: 4096, Overflows: new(uint64(0))},
		Loss:   diagnosis.Loss{Retransmits: new(uint64(3))},
		Sched:  []diagnosis.Role{{Name: "uvicorn", Threads: 2, OnCPU: new(200 * ms)}},
	}
	p.Stages[attribution.AcceptWait].TTFT = samples(n, waited)
	p.Stages[attribution.Engine] = diagnosis.StageTimes{TTFT: samples(n, engine), Gap: samples(10*n, engine/10)}
	return p
}

// node is what was measured on a node of these ports.
func node(ports ...diagnosis.Port) *diagnosis.Measured {
	m := &diagnosis.Measured{
		Window: 2 * time.Second,
		Node:   diagnosis.Node{Hostname: "gpu-node-7", Kernel: "6.18.0", AgentVersion: "0.1.0"},
		Ports:  ports,
		Coverage: []diagnosis.Coverage{
			{Signal: "accepted", Rung: "fexit/inet_csk_accept"},
			{Signal: "send_start", Missing: true, Note: "lost: blocked writes"},
			{Signal: "wake_to_run", Missing: true, Note: "lost: wake_to_run"},
			{Signal: "loss", Missing: true, Note: "lost: retransmits"},
		},
		Streams: []diagnosis.Stream{},
	}
	for i := range min(len(ports), 5) {
		m.Streams = append(m.Streams, diagnosis.Stream{
			ID: fmt.Sprintf("4f2a.%d", i), Port: ports[i].Port, NetNS: ports[i].NetNS, TTFT: 1420 * ms, WorstGap: time.Duration(i) * 30 * ms,
			TTFTStages: map[string]time.Duration{"accept_wait": 1300 * ms, "engine": 120 * ms},
			GapStages:  map[string]time.Duration{"engine": time.Duration(i) * 30 * ms},
		})
	}
	return m
}

// four ports: a jammed one, a quick one, one that served nothing, and one of which
// an ordinary user sees the listener alone.
func four() *diagnosis.Measured {
	jammed, quick := served(9345, "dynamo-frontend", 400, 1100*ms, 108*ms), served(8000, "python3", 1200, 0, 40*ms)
	quick.Engine = "vllm"
	idle := served(30000, "sglang", 0, 0, 0)
	bare := diagnosis.Port{Port: 11434, NetNS: 1}
	return node(jammed, quick, idle, bare)
}

func hundred() *diagnosis.Measured {
	var ports []diagnosis.Port
	for i := range 100 {
		ports = append(ports, served(uint16(20000+i), fmt.Sprintf("engine-%02d", i), 20+i, 0, time.Duration(i+1)*ms))
	}
	return node(ports...)
}

// view is a model without a terminal.
type view struct {
	*model
	t *testing.T
}

func newView(t *testing.T, width, height int, o Options) *view {
	work := newJobs(t.Context())
	t.Cleanup(work.close)
	v := &view{newModel(nil, o.withDefaults(), work), t}
	v.send(tea.WindowSizeMsg{Width: width, Height: height})
	return v
}

func shownAt(t *testing.T, width, height int, m *diagnosis.Measured) *view {
	v := newView(t, width, height, Options{})
	v.window(m)
	return v
}

// send gives the model a message and holds what it then draws to its size. The
// command that comes back is not run.
func (v *view) send(msg tea.Msg) tea.Cmd {
	v.t.Helper()
	_, cmd := v.Update(msg)
	lines := strings.Split(v.View(), "\n")
	if len(lines) > v.height {
		v.t.Errorf("%d lines on a screen of %d", len(lines), v.height)
	}
	for _, l := range lines {
		if w := lipgloss.Width(l); w > v.width {
			v.t.Errorf("%d columns on a screen of %d: %q", w, v.width, l)
		}
	}
	return cmd
}

// window shows m as a window of its own.
func (v *view) window(m *diagnosis.Measured) {
	v.t.Helper()
	v.send(reading{measured: m, report: diagnosis.Build(m), at: time.Date(2026, 7, 1, 14, 3, 7, 0, time.Local)})
}

var named = map[string]tea.KeyType{
	"up": tea.KeyUp, "down": tea.KeyDown, "enter": tea.KeyEnter, "esc": tea.KeyEsc, "tab": tea.KeyTab, "end": tea.KeyEnd,
	"home": tea.KeyHome, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp, "backspace": tea.KeyBackspace, "ctrl+c": tea.KeyCtrlC,
	"ctrl+u": tea.KeyCtrlU, "ctrl+z": tea.KeyCtrlZ,
}

// press types keys; a name of several letters that is no key's is typed as one
// message, as over a slow line.
func (v *view) press(keys ...string) (cmd tea.Cmd) {
	v.t.Helper()
	for _, k := range keys {
		if typ, ok := named[k]; ok {
			cmd = v.send(tea.KeyMsg{Type: typ})
		} else {
			cmd = v.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)})
		}
	}
	return cmd
}

// says fails where the screen lacks one of the texts.
func (v *view) says(texts ...string) {
	v.t.Helper()
	for _, s := range texts {
		if !strings.Contains(v.View(), s) {
			v.t.Errorf("the screen does not say %q:\n%s", s, v.View())
		}
	}
}

func (v *view) silent(texts ...string) {
	v.t.Helper()
	for _, s := range texts {
		if strings.Contains(v.View(), s) {
			v.t.Errorf("the screen says %q:\n%s", s, v.View())
		}
	}
}

// ports are those that the table shows, from top to bottom.
func (v *view) ports() string {
	var ports []string
	for _, l := range v.portsBody()[headLines:] {
		ports = append(ports, strings.Fields(strings.TrimPrefix(l, ">"))[0])
	}
	return strings.Join(ports, " ")
}

// sourceFunc is a Source.
type sourceFunc func(context.Context) (*diagnosis.Measured, error)

func (f sourceFunc) Measure(ctx context.Context) (*diagnosis.Measured, error) { return f(ctx) }
