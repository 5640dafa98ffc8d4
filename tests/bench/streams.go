// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// chunk is one event as a serving engine sends it.
var chunk = []byte(`data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"token"}}]}` + "\n\n")

// ChunkOnWire is how many bytes a chunk takes with its framing.
var ChunkOnWire = len(fmt.Sprintf("%x\r\n", len(chunk))) + len(chunk) + len("\r\n")

// Streams is an SSE server on net/http that flushes each chunk.
type Streams struct{ server http.Server }

// Listen starts it and answers with its port.
func (s *Streams) Listen(_ Nothing, port *int) error {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	*port = l.Addr().(*net.TCPAddr).Port
	s.server.Handler = http.HandlerFunc(stream)
	go s.server.Serve(l)
	return nil
}

// stream answers /CHUNKS or, one chunk each gap for ever, /paced/GAP.
func stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if gap, ok := strings.CutPrefix(r.URL.Path, "/paced/"); ok {
		paced(w, gap)
		return
	}
	n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil {
		http.Error(w, "no such path", http.StatusNotFound)
		return
	}
	f := w.(http.Flusher)
	for range n {
		if _, err := w.Write(chunk); err != nil {
			return
		}
		f.Flush()
	}
}

func paced(w http.ResponseWriter, gap string) {
	d, err := time.ParseDuration(gap)
	if err != nil || d <= 0 {
		http.Error(w, "no such gap", http.StatusNotFound)
		return
	}
	f := w.(http.Flusher)
	for next := time.Now(); ; next = next.Add(d) {
		time.Sleep(time.Until(next))
		if _, err := w.Write(chunk); err != nil {
			return
		}
		f.Flush()
	}
}
