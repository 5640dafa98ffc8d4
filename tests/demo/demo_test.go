// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/tests/peers"
)

// TestMain lets the test's binary be the own server, as the demo's is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// fakeAgent writes a program that records its arguments and then runs the lines
// of script.
func fakeAgent(t *testing.T, script string) (path, record string) {
	t.Helper()
	dir := t.TempDir()
	path, record = filepath.Join(dir, "agent"), filepath.Join(dir, "arguments")
	text := "#!/bin/sh\necho \"$@\" > " + record + "\n" + script + "\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, record
}

func TestDriverPassesDiagnoseThrough(t *testing.T) {
	agent, record := fakeAgent(t, "echo a report; echo progress >&2; sleep 0.5; exit 1")
	s := settings{agent: agent, duration: 500 * time.Millisecond, clients: 3, noEngine: true, extra: []string{"--json"}}
	var out, log bytes.Buffer
	code, err := drive(t.Context(), s, &out, &log)
	if err != nil || code != 1 {
		t.Fatalf("code %d, %v, log:\n%s", code, err, log.String())
	}
	if out.String() != "a report\n" || !strings.Contains(log.String(), "progress\n") {
		t.Errorf("output %q, log:\n%s", out.String(), log.String())
	}
	arguments, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(arguments))
	if len(fields) != 6 || strings.Join(fields[:4], " ") != "diagnose --for 500ms --port" || fields[5] != "--json" {
		t.Errorf("arguments: %s", arguments)
	}
	if !strings.Contains(log.String(), "saw") || strings.Contains(log.String(), "gave up") {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestDemoExitCodes(t *testing.T) {
	for _, c := range []struct {
		script string
		want   int
	}{{"exit 0", exitOK}, {"exit 1", exitOK}, {"exit 3", 3}, {"exit 4", exitMissing}, {"kill -9 $$", exitInternal}} {
		agent, _ := fakeAgent(t, c.script)
		args := []string{"--agent", agent, "--for", "100ms", "--clients", "1", "--no-engine"}
		if got := demoMain(t.Context(), args); got != c.want {
			t.Errorf("%q: exit code %d, want %d", c.script, got, c.want)
		}
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--agent", filepath.Join(t.TempDir(), "none")}, exitMissing},
		{[]string{"--nonsense"}, exitUsage},
		{[]string{"--clients", "0"}, exitUsage},
		{[]string{"--help"}, exitOK},
	} {
		if got := demoMain(t.Context(), c.args); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.args, got, c.want)
		}
	}
}

func TestDemoStopsWhenInterrupted(t *testing.T) {
	agent, _ := fakeAgent(t, "trap 'kill $!; exit 0' INT; sleep 30 & wait")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	start := peers.Now()
	code := demoMain(ctx, []string{"--agent", agent, "--for", "30s", "--clients", "2", "--no-engine"})
	if took := time.Duration(peers.Now() - start); code != exitInterrupted || took > 15*time.Second {
		t.Errorf("exit code %d after %v", code, took)
	}
}

// TestDisturbances runs the server in each phase in turn and looks for what its
// clients feel of it, against the calm phase.
func TestDisturbances(t *testing.T) {
	felt := map[phase]time.Duration{}
	for _, p := range []phase{calm, slowAccept, think, lateRead} {
		ctx, cancel := context.WithCancel(t.Context())
		const length = time.Hour
		s := &server{
			stop: ctx, token: time.Millisecond,
			accept: 60 * time.Millisecond, think: 80 * time.Millisecond, read: 70 * time.Millisecond,
			schedule: schedule{epoch: peers.Now() - int64(p)*int64(length), length: length},
		}
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- s.run(0, w); w.Close() }()
		address := make([]byte, 64)
		n, err := r.Read(address)
		if err != nil {
			t.Fatal(err)
		}
		rest := make(chan string, 1)
		go func() { b, _ := io.ReadAll(r); rest <- string(b) }()
		timings, err := peers.Load(ctx, strings.TrimSpace(string(address[:n])), "m", 1, 4, true)
		if err != nil || len(timings) != 2 {
			t.Fatalf("%v: %d exchanges, %v", p, len(timings), err)
		}
		felt[p] = timings[0].TTFT()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if said := <-rest; (p == calm) != (said == "") {
			t.Errorf("%v: the server said %q", p, said)
		}
	}
	for p, least := range map[phase]time.Duration{slowAccept: 60, think: 80, lateRead: 70} {
		if felt[p] < least*time.Millisecond {
			t.Errorf("%v: TTFT %v, less than was injected", p, felt[p])
		}
		if felt[p] < felt[calm] {
			t.Errorf("%v: TTFT %v, in calm %v", p, felt[p], felt[calm])
		}
	}
}

func TestStalledReaderBlocksTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	plan := schedule{epoch: peers.Now() - int64(stalledRead)*int64(time.Hour), length: time.Hour}
	own, err := startOwn(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	defer own.stop()
	l := &load{port: own.port}
	conn, err := peers.NewConn(l.url())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReceiveBuffer(stallBuffer)
	timing, err := conn.Stream(ctx, "m", peers.Options{Tokens: 8, Receive: func(read int) {
		if read == stallRead {
			time.Sleep(stallTime)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(timing.Reads) <= stallRead || timing.Content() != 8 {
		t.Fatalf("%d reads, %d content events: the answer does not fill the buffers", len(timing.Reads), timing.Content())
	}
	if worst := peers.QuantilesOf(timing.Gaps()).Max; worst < stallTime {
		t.Errorf("the longest gap is %v, the stall was %v", worst, stallTime)
	}
}

func TestSchedule(t *testing.T) {
	s := schedule{epoch: 1000, length: 10}
	for now, want := range map[int64]phase{0: calm, 999: calm, 1000: slowAccept, 1009: slowAccept, 1010: think, 1049: calm, 1050: slowAccept} {
		if got := s.at(now); got != want {
			t.Errorf("at %d: %v, want %v", now, got, want)
		}
	}
}
