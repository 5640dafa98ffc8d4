// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"testing"
)

func TestResponse(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for name, c := range map[string]struct {
		wire, body string
		closes     bool // the server closes after the wire's bytes
		fails      bool
	}{
		"chunked":            {wire: head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", body: "abc0123456789"},
		"trailer":            {wire: head + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n", body: "a"},
		"content length":     {wire: head + "Content-Length: 4\r\n\r\nabcd", body: "abcd"},
		"empty":              {wire: head + "Content-Length: 0\r\n\r\n"},
		"until close":        {wire: head + "\r\nabcd", body: "abcd", closes: true},
		"interim answers":    {wire: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n" + head + "Content-Length: 1\r\n\r\na", body: "a"},
		"broken chunk":       {wire: head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc", fails: true},
		"broken status":      {wire: "SSH-2.0 hello\r\n\r\n", fails: true},
		"broken length":      {wire: head + "Content-Length: -1\r\n\r\n", fails: true},
		"closed too early":   {wire: head + "Transfer-Encoding: chunked\r\n\r\n3\r\nab", closes: true, fails: true},
		"closed before head": {wire: "HTTP/1.1 200", closes: true, fails: true},
	} {
		for _, step := range []int{1, 3, len(c.wire)} {
			var r response
			var err error
			for at := 0; at < len(c.wire) && err == nil; at += step {
				err = r.feed([]byte(c.wire[at:min(at+step, len(c.wire))]))
			}
			if err == nil && c.closes {
				err = r.closed()
			}
			switch {
			case c.fails && err == nil:
				t.Errorf("%s by %d: no error", name, step)
			case !c.fails && err != nil:
				t.Errorf("%s by %d: %v", name, step, err)
			case !c.fails && (!r.ended || string(r.body) != c.body):
				t.Errorf("%s by %d: ended %v, body %q, want %q", name, step, r.ended, r.body, c.body)
			}
		}
	}
}

func TestEvents(t *testing.T) {
	for text, want := range map[string]Kind{
		`data: {"choices":[{"delta":{"role":"assistant","content":null}}]}`:                    Role,
		`data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}`: Role,
		`data: {"choices":[{"delta":{"role":"assistant","content":"a"}}]}`:                     Content,
		`data:{"choices":[{"delta":{"content":"a"}}]}`:                                         Content,
		`data: {"choices":[{"delta":{"reasoning_content":"a"}}]}`:                              Content,
		`data: {"choices":[{"text":"a"}]}`:                                                     Content,
		`data: {"choices":[{"delta":{},"finish_reason":"length"}]}`:                            Other,
		`data: {"choices":[],"usage":{"total_tokens":3}}`:                                      Other,
		`: keep-alive`:                           Other,
		`data: {"error":{"message":"no"}}`:       Failure,
		"event: error\ndata: {\"error\":\"no\"}": Failure,
		`data: [DONE]`:                           Done,
	} {
		list, err := events([]byte(text + "\n\n"))
		if err != nil || len(list) != 1 || list[0].kind != want || list[0].end != len(text)+2 {
			t.Errorf("%s: %v, %v, want %v", text, list, err, want)
		}
	}
	for _, text := range []string{"data: {\n\n", "data: {}"} {
		if _, err := events([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
