// SPDX-License-Identifier: Apache-2.0

package privileged

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

var errOdd = errors.New("odd")

type number struct{ N int }

// helper serves doubling verbs at the other end of a pipe.
func helper(t *testing.T) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	verbs := Verbs{
		"double": func(body []byte) (any, error) {
			var q number
			if err := Decode(body, &q); err != nil {
				return nil, err
			}
			if q.N%2 == 1 {
				return number{-1}, errOdd
			}
			return number{2 * q.N}, nil
		},
		"hang": func([]byte) (any, error) { time.Sleep(200 * time.Millisecond); return nil, nil },
	}
	done := make(chan error, 1)
	go func() {
		done <- Serve(theirs, verbs, func(err error) string {
			if errors.Is(err, errOdd) {
				return "odd"
			}
			return ""
		})
		theirs.Close()
	}()
	c := NewClient(ours)
	t.Cleanup(func() {
		c.Close()
		<-done
	})
	return c
}

func TestCall(t *testing.T) {
	c := helper(t)
	var out number
	if err := c.Call(t.Context(), "double", number{4}, &out); err != nil || out.N != 8 {
		t.Errorf("%d, %v", out.N, err)
	}
	var remote *RemoteError
	err := c.Call(t.Context(), "double", number{3}, &out)
	if !errors.As(err, &remote) || remote.Kind != "odd" || out.N != -1 {
		t.Errorf("%d, %v; an answer may come with an error", out.N, err)
	}
	for _, bad := range []any{map[string]int{"M": 1}, []int{1}, "text"} {
		if err := c.Call(t.Context(), "double", bad, nil); err == nil || !strings.Contains(err.Error(), "decoding the request") {
			t.Errorf("%v was taken: %v", bad, err)
		}
	}
	if err := c.Call(t.Context(), "erase", nil, nil); err == nil || !strings.Contains(err.Error(), "no such verb") {
		t.Errorf("an unknown verb: %v", err)
	}
	if err := c.Call(t.Context(), "double", strings.Repeat("x", maxRequest), nil); !errors.Is(err, ErrFrame) {
		t.Errorf("an oversized request: %v", err)
	}
	if err := c.Call(t.Context(), "double", number{6}, &out); err != nil || out.N != 12 {
		t.Errorf("after all that: %d, %v", out.N, err)
	}
}

// TestCallGivesUp: a helper that does not answer in time is gone for good.
func TestCallGivesUp(t *testing.T) {
	c := helper(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, "hang", nil, nil); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if err := c.Call(t.Context(), "double", number{2}, nil); !errors.Is(err, ErrGone) || !c.Gone() {
		t.Errorf("%v, gone %v", err, c.Gone())
	}
}

func TestServeRefuses(t *testing.T) {
	frame := func(s string) string {
		return string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
	}
	for name, c := range map[string]struct {
		input string
		want  error
	}{
		"nothing":          {"", nil},
		"a cut length":     {"\x01\x00", io.ErrUnexpectedEOF},
		"a cut frame":      {frame("{}")[:5], ErrFrame},
		"too long":         {"\xff\xff\xff\xff", ErrFrame},
		"no JSON":          {frame("{"), ErrFrame},
		"an unknown field": {frame(`{"verb":"x","more":1}`), ErrFrame},
		"two values":       {frame(`{"verb":"x"}{}`), ErrFrame},
		"one good verb":    {frame(`{"verb":"x"}`), nil},
	} {
		var out bytes.Buffer
		err := Serve(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(c.input), &out}, Verbs{}, func(error) string { return "" })
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// FuzzServe: whatever the daemon sends, the helper ends or answers, and holds no more
// than a request may be long.
func FuzzServe(f *testing.F) {
	f.Add([]byte("\x0f\x00\x00\x00{\"verb\":\"echo\"}"))
	f.Add([]byte("\xff\xff\xff\x7f"))
	verbs := Verbs{"echo": func(body []byte) (any, error) {
		var q map[string]any
		return q, Decode(body, &q)
	}}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		_ = Serve(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), &out}, verbs, func(error) string { return "" })
		for r := bytes.NewReader(out.Bytes()); r.Len() > 0; {
			var a reply
			if err := readFrame(r, &a, maxReply); err != nil {
				t.Fatalf("the answers are no frames: %v", err)
			}
		}
	})
}
