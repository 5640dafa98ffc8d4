// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/top"
)

// heldSource gives readings a second apart and remembers that it was closed.
type heldSource struct {
	n      int
	closed bool
}

func (s *heldSource) Measure(context.Context) (*diagnosis.Measured, error) {
	s.n++
	return &diagnosis.Measured{Window: time.Duration(s.n) * time.Second, Ports: []diagnosis.Port{{Port: 8000, Process: "python3", Exchanges: new(uint64(7 * s.n))}}}, nil
}

func (s *heldSource) Close() error { s.closed = true; return nil }

// runTop runs the verb in this process with standard output in a file.
func runTop(t *testing.T, source func(*cli.Context) (top.Source, io.Closer, error), args ...string) (string, error) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stdout, opened := os.Stdout, topSource
	os.Stdout, topSource = f, source
	defer func() { os.Stdout, topSource = stdout, opened }()
	app := &cli.App{Commands: []*cli.Command{topCommand()}, ExitErrHandler: func(*cli.Context, error) {}, Writer: f}
	err = app.RunContext(t.Context(), append([]string{"velo-agent", "top"}, args...))
	out, rerr := os.ReadFile(f.Name())
	if rerr != nil {
		t.Fatal(rerr)
	}
	return string(out), err
}

func TestTopOnce(t *testing.T) {
	for _, flag := range []string{"--once", "--json"} {
		s := &heldSource{}
		out, err := runTop(t, func(*cli.Context) (top.Source, io.Closer, error) { return s, s, nil }, flag, "--interval", "500ms")
		if err != nil || !s.closed || s.n != 2 {
			t.Fatalf("%s: %v, %d readings, closed: %v", flag, err, s.n, s.closed)
		}
		if flag == "--once" {
			if !strings.Contains(out, " 8000 python3") || !strings.Contains(out, " 7.00 ") {
				t.Errorf("printed %q", out)
			}
			continue
		}
		var r diagnosis.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.WindowS != 1 || *r.Ports[0].Exchanges != 7 {
			t.Errorf("printed %q, %v", out, err)
		}
	}
}

func TestTopWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "`velo-agent top --once`"},
		{[]string{"--once", "--interval", "0"}, "from 500ms to 1m"},
		{[]string{"--once", "--interval", "2m"}, "from 500ms to 1m"},
		{[]string{"--once", "--port", "0"}, "--port 0"},
		{[]string{"--once", "8000"}, "did you mean --port 8000?"},
	} {
		_, err := runTop(t, func(*cli.Context) (top.Source, io.Closer, error) {
			return nil, nil, errors.New("opened all the same")
		}, c.args...)
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want a usage error with %q", c.args, err, c.says)
		}
	}
}

func TestTopHelp(t *testing.T) {
	out, err := runTop(t, nil, "--help")
	for _, s := range []string{"--interval", "velo-agent top --port 8000", "between the ports and the worst exchanges", "Exit codes: 0"} {
		if err != nil || !strings.Contains(out, s) {
			t.Errorf("the help does not mention %q (%v)", s, err)
		}
	}
}
