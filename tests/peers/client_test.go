// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script answers each request of a connection with the writes of one entry, with
// a pause between two writes; an empty write closes the connection.
func script(t *testing.T, pause time.Duration, connections ...[][]string) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, exchanges := range connections {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			play(conn, pause, exchanges)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func play(conn net.Conn, pause time.Duration, exchanges [][]string) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for _, writes := range exchanges {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		io.Copy(io.Discard, request.Body)
		for i, w := range writes {
			if i > 0 {
				time.Sleep(pause)
			}
			if _, err := conn.Write([]byte(w)); err != nil || w == "" {
				return
			}
		}
	}
}

func chunkOf(events ...string) string {
	body := strings.Join(events, "\n\n") + "\n\n"
	const digits = "0123456789abcdef"
	n := len(body)
	return string([]byte{digits[n>>12&15], digits[n>>8&15], digits[n>>4&15], digits[n&15]}) + "\r\n" + body + "\r\n"
}

const (
	testHead     = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	roleEvent    = `data: {"choices":[{"delta":{"role":"assistant"}}]}`
	contentEvent = `data: {"choices":[{"delta":{"content":"x"}}]}`
	finishEvent  = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}`
	doneEvent    = `data: [DONE]`
	lastChunk    = "0\r\n\r\n"
)

// answer is written in the way of llama.cpp's server.
func answer() []string {
	return []string{
		testHead, chunkOf(roleEvent, contentEvent), chunkOf(contentEvent), chunkOf(contentEvent, contentEvent),
		chunkOf(finishEvent), chunkOf(doneEvent) + lastChunk,
	}
}

func TestStream(t *testing.T) {
	const pause = 20 * time.Millisecond
	url := script(t, pause, [][]string{answer()})
	timing, err := Stream(t.Context(), url, "m", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if timing.Status != 200 || timing.Exchange != 1 || timing.LocalPort == 0 || timing.Content() != 4 || !timing.Done() {
		t.Errorf("timing: %+v", timing)
	}
	stamps := []int64{timing.DialStart, timing.Connected, timing.WriteStart, timing.WriteEnd}
	for i := 1; i < len(stamps); i++ {
		if stamps[i] < stamps[i-1] {
			t.Errorf("stamp %d is before its predecessor: %v", i, stamps)
		}
	}
	if len(timing.Reads) != 6 || !timing.Reads[0].Head || !timing.Reads[1].Role || timing.Reads[1].Content != 1 || timing.Reads[4].Other != 1 {
		t.Fatalf("reads: %+v", timing.Reads)
	}
	if timing.TTFT() < pause || timing.Headers() >= timing.TTFT() {
		t.Errorf("TTFT %v, headers %v", timing.TTFT(), timing.Headers())
	}
	gaps := timing.Gaps()
	if len(gaps) != 3 || gaps[0] < pause || gaps[1] < pause || gaps[2] != 0 || len(timing.ReadGaps()) != 2 {
		t.Errorf("gaps %v, between reads %v", gaps, timing.ReadGaps())
	}
}

func TestStreamKeepsTheConnection(t *testing.T) {
	url := script(t, 0, [][]string{answer(), answer(), answer()})
	timings, err := Shape{Clients: 1, Exchanges: 3, Reuse: 3}.Run(t.Context(), url, "m")
	if err != nil {
		t.Fatal(err)
	}
	for i, timing := range timings {
		if timing.Exchange != i+1 || timing.LocalPort != timings[0].LocalPort || timing.Retried {
			t.Errorf("exchange %d: %+v", i+1, timing)
		}
	}
}

func TestStreamRetriesOnce(t *testing.T) {
	closed := append(answer(), "")
	url := script(t, 0, [][]string{closed}, [][]string{answer()})
	timings, err := Load(t.Context(), url, "m", 1, 4, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(timings) != 2 || timings[0].Retried || !timings[1].Retried || timings[1].Exchange != 1 {
		t.Errorf("timings: %+v", timings)
	}
}

func TestStreamFails(t *testing.T) {
	for name, writes := range map[string][]string{
		"closed without an answer": {""},
		"cut":                      {testHead + chunkOf(contentEvent), ""},
		"status":                   {"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"},
		"error event":              {testHead + chunkOf(`data: {"error":{"code":500}}`) + lastChunk},
		"no HTTP":                  {"hello\r\n\r\n"},
	} {
		url := script(t, 0, [][]string{writes})
		if timing, err := Stream(t.Context(), url, "m", Options{}); err == nil {
			t.Errorf("%s: no error, %+v", name, timing)
		}
	}
	for _, url := range []string{"https://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:1"} {
		if _, err := Stream(t.Context(), url, "m", Options{}); err == nil {
			t.Errorf("%s: no error", url)
		}
	}
}

func TestStreamEndsWithItsContext(t *testing.T) {
	url := script(t, time.Second, [][]string{{testHead, chunkOf(contentEvent), ""}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	timing, err := Stream(ctx, url, "m", Options{})
	if !errors.Is(err, context.DeadlineExceeded) || len(timing.Reads) != 1 {
		t.Errorf("%v after %d reads", err, len(timing.Reads))
	}
}

func TestQuantiles(t *testing.T) {
	var ds []time.Duration
	for i := 100; i > 0; i-- {
		ds = append(ds, time.Duration(i))
	}
	want := Quantiles{Count: 100, P50: 50, P90: 90, P99: 99, Max: 100}
	if got := QuantilesOf(ds); got != want {
		t.Errorf("quantiles: %+v, want %+v", got, want)
	}
	if ds[0] != 100 || Quantile(nil, 0.5) != 0 || Quantile(ds[:1], 0.01) != 100 {
		t.Error("a quantile changed its input, or an edge is wrong")
	}
}
