// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// The marks are what must be found nowhere. A piece of one is enough to tell.
const (
	promptMark = "QZprompt7xKwVjBoundlessly"
	answerMark = "QZanswer5vHyTqUnmistakably"
	pieceBytes = 8
)

// leaks returns a piece of a mark that b holds, or "".
func leaks(b []byte) string {
	for _, mark := range []string{promptMark, answerMark} {
		for i := range len(mark) - pieceBytes + 1 {
			if bytes.Contains(b, []byte(mark[i:i+pieceBytes])) {
				return mark[i : i+pieceBytes]
			}
		}
	}
	return ""
}

// engine streams marked tokens: in the same write as the headers, in short writes
// and in long ones, as the programs that look at first bytes meet them.
func engine(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !bytes.Contains(body, []byte(promptMark)) {
		http.Error(w, "no mark in the prompt", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Early", answerMark)
	flush := w.(http.Flusher).Flush
	if strings.HasSuffix(r.URL.Path, "headers-first") {
		flush()
	}
	fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n")
	flush()
	for i := range 6 {
		switch i % 3 {
		case 0:
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"%s\"}}]}\n\n", answerMark)
		case 1:
			fmt.Fprint(w, answerMark)
		case 2:
			fmt.Fprint(w, strings.Repeat(answerMark+" ", 100))
		}
		flush()
		time.Sleep(time.Millisecond)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// streams makes n requests and returns the served ends' connections.
func streams(t *testing.T, url string, n int) {
	t.Helper()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: time.Minute}
	for i := range n {
		path := url + []string{"/", "/headers-first"}[i%2]
		resp, err := client.Post(path, "application/json", strings.NewReader(`{"prompt":"`+strings.Repeat(promptMark+" ", 50)+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || leaks(b) == "" {
			t.Fatalf("the answer holds no mark: %v, %q", err, b)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) text() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.Bytes())
}

// TestNoContentAnywhere streams a marked prompt and a marked answer past a session
// with everything on and looks for a piece of either in all that it keeps or says.
func TestNoContentAnywhere(t *testing.T) {
	srv := listen(t)
	var log, traces lockedBuffer
	var mu sync.Mutex
	served := map[net.Conn]bool{}
	h := &http.Server{
		Handler: http.HandlerFunc(engine),
		ConnState: func(c net.Conn, st http.ConnState) {
			mu.Lock()
			defer mu.Unlock()
			served[c] = st != http.StateClosed && st != http.StateHijacked
		},
	}
	go func() { _ = h.Serve(srv) }()
	defer h.Close()
	s := open(t, Options{
		Watch: Watch{Ports: []uint16{srv.port}, BothEnds: true}, ExactAccept: true, TraceAll: true,
		OnTrace: func(tr *attribution.Trace) { fmt.Fprintf(&traces, "%+v\n", *tr) },
		Log:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	keep := &http.Transport{} // its connection stays open, so that its storage can be read
	defer keep.CloseIdleConnections()
	url := "http://" + srv.Addr().String()
	streams(t, url, 20)
	for range 4 {
		resp, err := (&http.Client{Transport: keep}).Post(url, "application/json", strings.NewReader(promptMark))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	r := s.report(t)
	if r.Ports[0].Exchanges == nil || *r.Ports[0].Exchanges < 24 {
		t.Fatalf("the session saw %v exchanges, want 24", r.Ports[0].Exchanges)
	}

	outputs := map[string][]byte{"the log": log.text(), "a trace": traces.text()}
	for name, write := range map[string]func(io.Writer) error{
		"the JSON report":     func(w io.Writer) error { return diagnosis.WriteJSON(w, r) },
		"the Markdown report": func(w io.Writer) error { return diagnosis.WriteMarkdown(w, r) },
		"the text report":     func(w io.Writer) error { return diagnosis.WriteText(w, r, diagnosis.Style{}) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		outputs[name] = b.Bytes()
	}
	for name, m := range s.kernelMaps(t) {
		outputs["map "+name] = dump(t, m)
	}
	conns := s.kernelMaps(t)["conns"]
	mu.Lock()
	for c, open := range served {
		if open {
			outputs["the storage of a connection"] = append(outputs["the storage of a connection"], connStorage(t, conns, c)...)
		}
	}
	mu.Unlock()
	for _, must := range []string{"the log", "a trace", "map records", "map ports", "the storage of a connection", "map threads"} {
		if must == "map threads" && !s.held("wake_to_run") {
			continue
		}
		if len(bytes.Trim(outputs[must], "\x00")) == 0 {
			t.Errorf("%s is empty: nothing was looked at", must)
		}
	}
	for name, b := range outputs {
		if piece := leaks(b); piece != "" {
			t.Errorf("%s holds %q", name, piece)
		}
	}
}

// dump reads all that a map holds, a ring with what was read of it already.
func dump(t *testing.T, m *ebpf.Map) []byte {
	t.Helper()
	var out bytes.Buffer
	switch m.Type() {
	case ebpf.RingBuf:
		page, size := os.Getpagesize(), int(m.MaxEntries())
		b, err := unix.Mmap(m.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	case ebpf.SkStorage: // by descriptor: see connStorage
	case ebpf.TaskStorage:
		for _, tid := range threads(t) {
			const pidfdThread = unix.O_EXCL
			fd, err := unix.PidfdOpen(tid, pidfdThread)
			if err != nil {
				fd, err = unix.PidfdOpen(os.Getpid(), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			var v []byte
			if err := m.Lookup(int32(fd), &v); err == nil {
				out.Write(v)
			}
			unix.Close(fd)
		}
	case ebpf.PerCPUArray:
		for i := range m.MaxEntries() {
			var v [][]byte
			if err := m.Lookup(i, &v); err != nil {
				t.Fatal(err)
			}
			out.Write(bytes.Join(v, nil))
		}
	default:
		var k, v []byte
		it := m.Iterate()
		for it.Next(&k, &v) {
			out.Write(k)
			out.Write(v)
		}
		if err := it.Err(); err != nil {
			t.Fatalf("reading %v: %v", m, err)
		}
	}
	return out.Bytes()
}

func threads(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var tids []int
	for _, e := range entries {
		var tid int
		if _, err := fmt.Sscan(e.Name(), &tid); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

func connStorage(t *testing.T, conns *ebpf.Map, c net.Conn) []byte {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var v []byte
	if err := raw.Control(func(fd uintptr) { err = conns.Lookup(int32(fd), &v) }); err != nil {
		return nil // closed meanwhile
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLeaksFindsAPiece(t *testing.T) {
	if leaks([]byte("…"+promptMark[5:5+pieceBytes]+"…")) == "" || leaks([]byte("QZprompt"[:7])) != "" {
		t.Error("a piece of a mark is not told from none")
	}
}
