// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// progress writes a peer's progress into the test's log.
type progress struct{ t *testing.T }

func (p progress) Write(b []byte) (int, error) {
	p.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func startContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestLlama(t *testing.T) {
	engine, err := StartLlama(startContext(t), Config{Log: progress{t}, Slots: 8})
	Skip(t, err)
	defer func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	}()
	timings, err := Load(t.Context(), engine.URL, engine.Model, 8, 12, true)
	if err != nil {
		t.Fatal(err)
	}
	check(t, timings, 16)
	for _, timing := range timings {
		// The server says Keep-Alive and closes after each streamed answer.
		if timing.Exchange != 1 {
			t.Errorf("llama.cpp's server kept a connection: correct the wire notes in doc.go")
		}
	}
}

func TestDynamo(t *testing.T) {
	dynamo, err := StartDynamo(startContext(t), Config{Log: progress{t}})
	Skip(t, err)
	defer func() {
		if err := dynamo.Stop(); err != nil {
			t.Error(err)
		}
	}()
	t.Run("load", func(t *testing.T) {
		timings, err := Load(t.Context(), dynamo.URL, dynamo.Model, 8, 12, true)
		if err != nil {
			t.Fatal(err)
		}
		check(t, timings, 16)
		kept := 0
		for _, timing := range timings {
			kept += timing.Exchange - 1
		}
		if kept != 8 {
			t.Errorf("%d of 8 second exchanges were on the first one's connection", kept)
		}
	})
	t.Run("pause", func(t *testing.T) { pause(t, dynamo) })
}

// pause stops the worker in the middle of a stream: the client sees one gap as
// long as the stop, and all tokens.
func pause(t *testing.T, dynamo *Dynamo) {
	const tokens, wanted = 100, 3 * time.Second
	begun := make(chan struct{})
	type result struct {
		stopped time.Duration
		err     error
	}
	results := make(chan result, 1)
	go func() {
		<-begun
		stopped, err := dynamo.PauseWorker(t.Context(), wanted)
		results <- result{stopped, err}
	}()
	timing, err := Stream(t.Context(), dynamo.URL, dynamo.Model, Options{Tokens: tokens, Receive: func(read int) {
		if read == 5 {
			close(begun)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	gaps := QuantilesOf(timing.Gaps())
	ratio := float64(gaps.Max) / float64(r.stopped)
	t.Logf("stopped for %v, longest gap %v (%.3f of it), median gap %v", r.stopped, gaps.Max, ratio, gaps.P50)
	if ratio < 0.95 || ratio > 1.15 {
		t.Errorf("the longest gap is %.3f of the stop", ratio)
	}
	long := 0
	for _, gap := range timing.Gaps() {
		if gap > r.stopped/4 {
			long++
		}
	}
	if long != 1 || timing.Content() < tokens/2 || !timing.Done() {
		t.Errorf("%d long gaps, %d content events, done %v", long, timing.Content(), timing.Done())
	}
}

func check(t *testing.T, timings []Timing, want int) {
	t.Helper()
	if len(timings) != want {
		t.Fatalf("%d exchanges, want %d", len(timings), want)
	}
	for _, timing := range timings {
		if timing.Content() < 2 || !timing.Done() || timing.Headers() <= 0 || timing.TTFT() < timing.Headers() {
			t.Errorf("exchange on port %d: %d content events, done %v, headers after %v, TTFT %v",
				timing.LocalPort, timing.Content(), timing.Done(), timing.Headers(), timing.TTFT())
		}
	}
	t.Logf("%+v", Summarize(timings))
}

func TestTinyModelIsMadeOnce(t *testing.T) {
	ctx := startContext(t)
	first, err := TinyModel(ctx, "")
	Skip(t, err)
	before, err := os.Stat(first.GGUF)
	if err != nil {
		t.Fatal(err)
	}
	second, err := TinyModel(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(second.GGUF)
	if err != nil || !before.ModTime().Equal(after.ModTime()) || first != second {
		t.Errorf("the model was made again: %+v, %+v, %v", first, second, err)
	}
}

func TestUnavailableWithoutPython(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := StartDynamo(t.Context(), Config{Scratch: t.TempDir()})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "python3") {
		t.Errorf("error without Python: %v", err)
	}
}
