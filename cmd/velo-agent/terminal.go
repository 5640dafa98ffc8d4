// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/diagnosis"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// style fits the report to where it is printed.
func style(c *cli.Context) diagnosis.Style {
	s := diagnosis.Style{ASCII: !utf8Locale()}
	term := isTerminal(os.Stdout)
	s.Color = c.String("color") == "always" ||
		c.String("color") == "auto" && term && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil && term && size.Col >= 60 {
		s.Width = min(int(size.Col), 120)
	}
	return s
}

// utf8Locale: where no locale is set at all, as in a container, output is taken
// to be UTF-8.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToUpper(v)
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return true
}

func logger(c *cli.Context) *slog.Logger {
	if !c.Bool("verbose") {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// bar shows progress: one line that is written over on a terminal, a line now
// and then elsewhere.
type bar struct {
	w        io.Writer
	terminal bool
	last     time.Time
}

const plainEvery = 5 * time.Second

func newBar(f *os.File) *bar { return &bar{w: f, terminal: isTerminal(f)} }

func (b *bar) tell(what string, done, whole time.Duration) {
	const cells = 30
	if b.terminal {
		n := int(cells * done / whole)
		fmt.Fprintf(b.w, "\r\033[K%s [%s%s] %.0f of %.0f s", what, strings.Repeat("=", n), strings.Repeat(" ", cells-n), done.Seconds(), whole.Seconds())
		return
	}
	if time.Since(b.last) >= plainEvery {
		b.last = time.Now()
		fmt.Fprintf(b.w, "%s: %.0f of %.0f s\n", what, done.Seconds(), whole.Seconds())
	}
}

func (b *bar) clear() {
	if b.terminal {
		fmt.Fprint(b.w, "\r\033[K")
	}
}
