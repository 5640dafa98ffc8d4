// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"slices"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/velo-agent/velo-agent/diagnosis"
)

type screen int

const (
	portsScreen screen = iota
	portScreen
	worstScreen
	coverageScreen
	helpScreen
)

// model is the state of the view. Only the event loop touches it.
type model struct {
	Options
	source        Source
	work          *jobs
	width, height int

	last      *diagnosis.Measured // the newest reading, where the next window begins
	report    *diagnosis.Report   // of the window that is shown; nil: none has ended
	at        time.Time           // when that window ended
	err       error               // of the newest try
	measuring bool
	paused    bool
	due       int // number of the tick that is waited for: older ones do nothing

	screen screen
	back   []screen // where esc leads
	scroll int      // first line shown of a page

	rows     []row // filtered and sorted
	sort     int   // index of columns
	reversed bool
	filter   string
	typing   bool // the filter is being typed
	selected id
	chosen   bool // by the user; otherwise it is the first row, whichever that is
	at1st    int  // index of the first row shown
	stream   int  // selected one of the worst
}

func newModel(s Source, o Options, work *jobs) *model {
	return &model{
		Options: o, source: s, work: work, width: o.Width, height: usualHeight,
		sort: slices.IndexFunc(columns, func(c column) bool { return c.name == "TTFT p99" }),
	}
}

// reading is a try that ended. report is nil for the first reading of all, and where
// nothing new was read.
type reading struct {
	measured *diagnosis.Measured
	report   *diagnosis.Report
	at       time.Time
	err      error
}

type tick struct{ due int }

// Init takes the first reading.
func (m *model) Init() tea.Cmd { return m.measure() }

func (m *model) measure() tea.Cmd {
	m.measuring = true
	last := m.last
	return m.work.cmd(func(ctx context.Context) tea.Msg {
		now, err := measure(ctx, m.source, m.Timeout)
		r := reading{measured: now, at: time.Now(), err: err}
		if err == nil && last != nil && now.Window != last.Window {
			r.report = diagnosis.Build(now.Since(last))
		}
		return r
	})
}

// wait ends with a tick after the interval.
func (m *model) wait() tea.Cmd {
	m.due++
	due, interval := m.due, m.Interval
	return m.work.cmd(func(ctx context.Context) tea.Msg {
		t := time.NewTimer(interval)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			return tick{due}
		}
	})
}

// Update takes a key, a new size, a tick or a reading.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case reading:
		cmd = m.take(&msg)
	case tick:
		if msg.due == m.due && !m.paused && !m.measuring {
			cmd = m.measure()
		}
	case tea.KeyMsg:
		cmd = m.keys(msg)
	}
	m.settle()
	return m, cmd
}

func (m *model) take(r *reading) tea.Cmd {
	m.measuring = false
	if m.paused {
		return nil
	}
	if m.err = r.err; r.err == nil {
		m.last = r.measured
	}
	if r.report != nil {
		m.report, m.at = r.report, r.at
	}
	return m.wait()
}

// keys takes what was typed. Over a slow line several keys come as one message.
func (m *model) keys(msg tea.KeyMsg) tea.Cmd {
	if m.typing {
		m.typed(msg)
		if msg.Type == tea.KeyCtrlC {
			return tea.Quit
		}
		return nil
	}
	if msg.Paste {
		return nil
	}
	if msg.Type != tea.KeyRunes || len(msg.Runes) < 2 {
		return m.key(msg)
	}
	var cmds []tea.Cmd
	for _, r := range msg.Runes {
		cmds = append(cmds, m.keys(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}}))
		m.settle()
	}
	return tea.Batch(cmds...)
}

func (m *model) key(msg tea.KeyMsg) tea.Cmd {
	switch {
	case key.Matches(msg, keyQuit.Binding):
		return tea.Quit
	case key.Matches(msg, keySuspend.Binding):
		return tea.Suspend
	case key.Matches(msg, keyPause.Binding):
		m.paused = !m.paused
		if !m.paused && !m.measuring {
			return m.measure()
		}
	case key.Matches(msg, keySlower.Binding):
		return m.every(func(d time.Duration) bool { return d > m.Interval })
	case key.Matches(msg, keyFaster.Binding):
		return m.every(func(d time.Duration) bool { return d < m.Interval })
	case key.Matches(msg, keyEsc.Binding):
		m.escape()
	case key.Matches(msg, keyHelp.Binding):
		m.open(helpScreen)
	case key.Matches(msg, keyCover.Binding):
		m.open(coverageScreen)
	case key.Matches(msg, keyTab.Binding):
		m.back, m.scroll = nil, 0
		if m.screen == worstScreen {
			m.screen = portsScreen
		} else {
			m.screen = worstScreen
		}
	case m.screen == portsScreen:
		m.portsKey(msg)
	case m.screen == worstScreen:
		m.worstKey(msg)
	default:
		m.scroll = moved(msg, m.scroll, m.bodyHeight())
	}
	return nil
}

// intervals that + and - step through.
var intervals = []time.Duration{Shortest, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, Longest}

// every changes the interval to the nearest that is longer, or shorter, and waits
// for that anew.
func (m *model) every(further func(time.Duration) bool) tea.Cmd {
	next := m.Interval
	for _, d := range intervals {
		if further(d) && (next == m.Interval || (d-m.Interval).Abs() < (next-m.Interval).Abs()) {
			next = d
		}
	}
	if m.Interval = next; m.measuring || m.paused {
		return nil
	}
	return m.wait()
}

func (m *model) open(s screen) {
	if m.screen == s {
		return
	}
	m.back = append(m.back, m.screen)
	m.screen, m.scroll = s, 0
}

func (m *model) escape() {
	m.scroll = 0
	switch n := len(m.back); {
	case n > 0:
		m.screen, m.back = m.back[n-1], m.back[:n-1]
	case m.screen == portsScreen:
		m.filter = ""
	default:
		m.screen = portsScreen
	}
}

// moved is where a key that goes up or down leads from line i.
func moved(msg tea.KeyMsg, i, page int) int {
	switch {
	case key.Matches(msg, keyUp.Binding):
		return i - 1
	case key.Matches(msg, keyDown.Binding):
		return i + 1
	case key.Matches(msg, keyPgUp.Binding):
		return i - page
	case key.Matches(msg, keyPgDown.Binding):
		return i + page
	case key.Matches(msg, keyHome.Binding):
		return 0
	case key.Matches(msg, keyEnd.Binding):
		return 1 << 20 // settle knows the end
	}
	return i
}

// settle fits what is selected and shown to the newest report and size.
func (m *model) settle() {
	m.settlePorts()
	if m.report != nil {
		m.stream = max(min(m.stream, len(m.report.Streams)-1), 0)
	}
	if page := m.page(); page != nil {
		m.scroll = max(min(m.scroll, len(page)-m.bodyHeight()), 0)
	}
}
