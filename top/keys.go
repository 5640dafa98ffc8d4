// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/bubbles/key"
)

// binding is a key with what the last line calls it and what the help says of it.
type binding struct {
	key.Binding
	long string
}

func bind(name, short, long string, keys ...string) binding {
	return binding{key.NewBinding(key.WithKeys(keys...), key.WithHelp(name, short)), long}
}

var (
	keyUp      = bind("up k", "", "the line before; on a page, scroll", "up", "k")
	keyDown    = bind("down j", "", "the line after; PgUp, PgDn, Home and End go further", "down", "j")
	keyPgUp    = bind("", "", "", "pgup", "ctrl+b")
	keyPgDown  = bind("", "", "", "pgdown", "ctrl+f", " ")
	keyHome    = bind("", "", "", "home", "g")
	keyEnd     = bind("", "", "", "end", "G")
	keyEnter   = bind("enter", "open", "open the port: stages, accept queue, losses, threads, findings", "enter")
	keyEsc     = bind("esc", "back", "back; on the list of ports, drop the filter", "esc", "backspace")
	keyTab     = bind("tab", "worst", "between the ports and the worst exchanges", "tab")
	keyFilter  = bind("/", "filter", "show only ports whose number, process or engine holds a text", "/")
	keyLeft    = bind("<", "sort", "sort by the column to the left", "<", ",", "left")
	keyRight   = bind(">", "sort", "sort by the column to the right", ">", ".", "right")
	keyColumn  = bind("1-9 0 !", "sort", "sort by the first to the ninth column, by accept, by findings", "1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "!")
	keyReverse = bind("r", "reverse", "reverse the order", "r")
	keyPause   = bind("p", "pause", "pause, and go on: the next window then spans the pause", "p")
	keySlower  = bind("+", "slower", "longer windows", "+", "=")
	keyFaster  = bind("-", "faster", "shorter windows, down to 500ms", "-", "_")
	keyCover   = bind("c", "coverage", "how each signal is obtained, which are missing, what the agent costs", "c")
	keyHelp    = bind("h ?", "help", "the keys and the columns", "h", "?")
	keyQuit    = bind("q", "quit", "quit", "q", "ctrl+c")
	keySuspend = bind("", "", "", "ctrl+z")
)

// bindings in the order in which the help tells them.
var bindings = []binding{
	keyUp, keyDown, keyEnter, keyEsc, keyTab, keyFilter, keyLeft, keyRight, keyColumn, keyReverse,
	keyPause, keySlower, keyFaster, keyCover, keyHelp, keyQuit,
}

// KeysHelp lists the keys, one a line, for the help of the verb.
func KeysHelp() string {
	var b strings.Builder
	for _, k := range bindings {
		fmt.Fprintf(&b, "   %-8s %s\n", k.Help().Key, k.long)
	}
	return b.String()
}

// hints is the last line of a screen.
func hints(of ...binding) string {
	var parts []string
	for _, k := range of {
		parts = append(parts, strings.Fields(k.Help().Key)[0]+" "+k.Help().Desc)
	}
	return strings.Join(parts, "  ")
}
