// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"testing"
	"time"
)

func TestAnswerLength(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   int
		ok     bool
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 41, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 58, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", 53, false},
		{"HTTP/1.1 200 OK\r\nContent-Le", 0, false},
	} {
		if n, ok := answerLength([]byte(c.answer)); n != c.want || ok != c.ok {
			t.Errorf("%q: %d, %v, want %d, %v", c.answer, n, ok, c.want, c.ok)
		}
	}
}

// The client counts what the server streams, in both forms.
func TestLoadOfStreams(t *testing.T) {
	var port int
	var server Streams
	if err := server.Listen(Nothing{}, &port); err != nil {
		t.Fatal(err)
	}
	defer server.server.Close()
	var busy Load
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	if err := busy.Open(LoadPlan{Addr: addr, Path: "/8", Conns: 2}, &Nothing{}); err != nil {
		t.Fatal(err)
	}
	defer busy.close()
	var got LoadResult
	if err := busy.Run(50*time.Millisecond, &got); err != nil || got.Answers == 0 || got.Took == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	var n uint64
	if err := busy.Bytes(Nothing{}, &n); err != nil || n < uint64(8*got.Answers*ChunkOnWire) {
		t.Errorf("%d bytes in %d answers of 8 chunks, %v", n, got.Answers, err)
	}
}
