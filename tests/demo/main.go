// SPDX-License-Identifier: Apache-2.0

// Command demo shows velo-agent at work on one machine: it starts a real engine
// (llama.cpp's server with a tiny random model) and a small streaming server of
// its own whose disturbances are known, streams from both, and runs
// "velo-agent diagnose" on their ports.
//
//	demo [--agent PATH] [--for 15s] [--clients 8] [--no-engine] [-- DIAGNOSE FLAGS]
//	demo server [--port 0] [--phase 3s] …
//
// It exits with 0 where diagnose exited with 0 or 1 (findings are the point
// here), else with diagnose's code: 2 for wrong usage, 4 where the agent is
// missing, 130 where it was interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/peers"
)

// The exit codes of DESIGN.md section 8 that the demo has uses for, and the
// shell's code for SIGINT.
const (
	exitOK          = 0
	exitUsage       = 2
	exitMissing     = 4
	exitInternal    = 5
	exitInterrupted = 130
)

func main() {
	// Children are killed when the thread that forked them ends: keep it.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	code := exitInternal
	if len(os.Args) > 1 && os.Args[1] == "server" {
		code = serverMain(ctx, os.Args[2:])
	} else {
		code = demoMain(ctx, os.Args[1:])
	}
	stop()
	os.Exit(code)
}

// settings are the driver's flags.
type settings struct {
	agent    string
	duration time.Duration
	clients  int
	noEngine bool
	scratch  string
	extra    []string // for diagnose
}

func demoMain(ctx context.Context, args []string) int {
	var s settings
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&s.agent, "agent", "build/velo-agent", "the velo-agent `binary`")
	flags.DurationVar(&s.duration, "for", 15*time.Second, "how long diagnose measures")
	flags.IntVar(&s.clients, "clients", 8, "streams at once from each server")
	flags.BoolVar(&s.noEngine, "no-engine", false, "leave the real engine out")
	flags.StringVar(&s.scratch, "scratch", peers.ScratchDir(), "`folder` for the engine and its model")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	s.extra = flags.Args()
	if s.duration <= 0 || s.clients <= 0 {
		fmt.Fprintln(os.Stderr, "demo: --for and --clients must be positive")
		return exitUsage
	}
	if _, err := os.Stat(s.agent); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v; build the agent first, or name it with --agent\n", err)
		return exitMissing
	}
	code, err := drive(ctx, s, os.Stdout, os.Stderr)
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "demo: interrupted; everything was stopped")
		return exitInterrupted
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return exitInternal
	}
	if code == 1 {
		return exitOK
	}
	return code
}
