// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestReplay(t *testing.T) {
	fresh := timeline{}.established(0).accepted(0)
	for _, c := range []struct {
		name  string
		steps timeline
		opts  Options
		want  string
	}{
		{
			name:  "a simple exchange",
			steps: fresh.arrived(10, 100).ran(11).read(13, 100).write(33, 35, 500, Content).write(40, 41, 600, Content),
			want:  "first 25; ttft 25: wake_to_run 1 reader 2 engine 20 send_queue 2; gap 6: engine 5 send_queue 1",
		},
		{
			name:  "accept wait, clipped to the request",
			steps: timeline{}.established(0).arrived(10, 100).accepted(30).read(31, 100).write(33, 33, 500, Content),
			want:  "first 23; ttft 23: accept_wait 20 reader 1 engine 2",
		},
		{
			name:  "accepted before the request came",
			steps: timeline{}.established(0).accepted(30).arrived(40, 100).read(41, 100).write(43, 43, 500, Content),
			want:  "first 3; ttft 3: reader 1 engine 2",
		},
		{
			name:  "the accept wait belongs to the first exchange alone",
			steps: timeline{}.established(0).arrived(10, 100).accepted(30).read(30, 100).write(30, 30, 500, Content).request(50, 200).write(53, 53, 900, Content),
			want:  "first 20; ttft 20: accept_wait 20; first 3; ttft 3: wake_to_run 1 reader 1 engine 1",
		},
		{
			name:  "the woken thread was accepting: wake-up inside accept wait",
			steps: timeline{}.established(0).arrived(10, 100).accepted(30).ran(15).read(31, 100).write(31, 31, 500, Content),
			want:  "first 21; ttft 21: accept_wait 20 reader 1",
		},
		{
			name:  "handed to a thread that was busy",
			steps: fresh.arrived(10, 100).ran(13).handed(13).read(18, 100).write(20, 20, 500, Content),
			want:  "first 10; ttft 10: wake_to_run 3 runtime_handoff 5 engine 2",
		},
		{
			name:  "the reading thread was woken by others: until then the application's delay",
			steps: fresh.arrived(10, 100).ran(13).handed(16).read(18, 100).write(20, 20, 500, Content),
			want:  "first 10; ttft 10: wake_to_run 3 runtime_handoff 2 reader 3 engine 2",
		},
		{
			name:  "a hand-over that precedes the wake-up is clamped to it",
			steps: fresh.arrived(10, 100).ran(13).handed(11).read(18, 100).write(20, 20, 500, Content),
			want:  "first 10; ttft 10: wake_to_run 3 runtime_handoff 5 engine 2",
		},
		{
			name:  "the reader was running: nobody was woken",
			steps: fresh.arrived(10, 100).read(12, 100).write(20, 20, 500, Content),
			want:  "first 10; ttft 10: reader 2 engine 8",
		},
		{
			name:  "who was woken is not known",
			steps: fresh.arrived(10, 100).read(12, 100).write(20, 20, 500, Content),
			opts:  Options{NoSched: true},
			want:  "first 10; ttft 10: engine 8 unexplained 2",
		},
		{
			name:  "MSG_PEEK takes nothing, so there is no step of it",
			steps: fresh.arrived(10, 100).ran(11).read(17, 100).write(20, 20, 500, Content),
			want:  "first 10; ttft 10: wake_to_run 1 reader 6 engine 3",
		},
		{
			name:  "partial reads as the bytes come",
			steps: fresh.arrived(10, 40).ran(11).read(12, 40).arrived(20, 100).ran(21).read(23, 100).write(25, 25, 500, Content),
			want:  "first 5; ttft 5: wake_to_run 1 reader 2 engine 2",
		},
		{
			name:  "partial reads of what is all there",
			steps: fresh.arrived(10, 40).arrived(20, 100).ran(21).read(22, 40).read(24, 100).write(25, 25, 500, Content),
			want:  "first 5; ttft 5: reader 4 engine 1",
		},
		{
			name:  "answered after a part of the oldest segment alone",
			steps: fresh.arrived(10, 40).arrived(20, 100).read(22, 30).write(25, 25, 500, Content),
			want:  "first 15; ttft 15: reader 12 engine 3",
		},
		{
			name:  "a request in many segments begins with the last",
			steps: fresh.arrived(10, 10).arrived(12, 20).arrived(14, 30).arrived(20, 40).ran(21).read(22, 40).write(25, 25, 500, Content),
			want:  "first 5; ttft 5: wake_to_run 1 reader 1 engine 3",
		},
		{
			name: "100 Continue is no answer",
			steps: fresh.request(10, 100).write(13, 13, 25, Interim).
				request(30, 900).write(40, 40, 500, Content),
			want: "first 10; ttft 10: wake_to_run 1 reader 1 engine 8",
		},
		{
			name: "100 Continue is no exchange of its own, and no gap",
			steps: fresh.request(10, 100).write(13, 13, 25, Interim).write(15, 15, 50, Interim).
				write(20, 20, 500, Content).write(24, 24, 600, Content),
			want: "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; gap 4: engine 4",
		},
		{
			name:  "pipelined requests in one segment are one exchange",
			steps: fresh.request(10, 200).write(20, 20, 500, Content).write(30, 30, 900, Content),
			want:  "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; gap 10: engine 10",
		},
		{
			name: "a pipelined request that is read after the answer before it",
			steps: fresh.request(10, 100).arrived(15, 200).write(20, 20, 500, Content).
				read(22, 200).write(30, 30, 900, Content),
			// It had arrived when the first answer began: to the kernel the same request.
			want: "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; gap 10: engine 10",
		},
		{
			name: "a pipelined request that arrives while the answer before it runs",
			steps: fresh.request(10, 100).write(20, 20, 500, Content).arrived(21, 200).write(24, 24, 600, Content).
				read(25, 200).write(30, 30, 900, Content),
			want: "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; gap 4: engine 4; first 9; ttft 9: reader 4 engine 5",
		},
		{
			name:  "half-close: a FIN moves no position",
			steps: fresh.request(10, 100).arrived(15, 100).write(20, 20, 500, Content),
			want:  "first 10; ttft 10: wake_to_run 1 reader 1 engine 8",
		},
		{
			name: "a server that answers before it has read all",
			steps: fresh.arrived(10, 1000).ran(11).read(12, 400).write(20, 20, 500, Content).
				read(21, 1000).write(25, 25, 600, Content),
			want: "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; gap 5: engine 5",
		},
		{
			name: "what comes after the answer began is the next request, even of the same body",
			steps: fresh.request(10, 400).write(20, 20, 500, Content).
				request(30, 1000).write(40, 40, 900, Content),
			want: "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; first 10; ttft 10: wake_to_run 1 reader 1 engine 8",
		},
		{
			name:  "splice: a read that was not seen",
			steps: fresh.arrived(10, 100).unseenRead(18, 100).write(18, 20, 500, Content),
			want:  "first 10; ttft 10: send_queue 2 unexplained 8",
		},
		{
			name:  "a seen read after an unseen one",
			steps: fresh.arrived(10, 50).unseenRead(12, 50).arrived(15, 100).read(18, 100).write(20, 20, 500, Content),
			want:  "first 5; ttft 5: reader 3 engine 2",
		},
		{
			name: "a write that is cut short",
			steps: fresh.request(10, 100).send(20, 500, Content).cut(21, 300).sent(21, 300).
				send(40, 500, Content).sent(41, 500),
			want: "first 11; ttft 11: wake_to_run 1 reader 1 engine 8 send_queue 1; gap 20: engine 19 send_queue 1",
		},
		{
			name:  "a cut that takes nothing off",
			steps: fresh.request(10, 100).send(20, 500, Content).cut(21, 500).sent(21, 500),
			want:  "first 11; ttft 11: wake_to_run 1 reader 1 engine 8 send_queue 1",
		},
		{
			name: "EAGAIN: the write that took nothing never was",
			steps: fresh.request(10, 100).send(20, 500, Content).refused(20, 0).sent(20, 0).
				send(40, 500, Content).sent(40, 500).write(45, 45, 600, Content),
			want: "first 30; ttft 30: wake_to_run 1 reader 1 engine 28; gap 5: engine 5",
		},
		{
			name: "EAGAIN after the headers gives back the content alone",
			steps: fresh.request(10, 100).write(15, 15, 200, Headers).send(20, 500, Content).refused(20, 200).
				write(40, 40, 500, Content),
			want: "first 5; ttft 30: wake_to_run 1 reader 1 engine 28",
		},
		{
			name: "writes that queue behind a closed window and leave together",
			steps: fresh.request(10, 100).write(20, 20, 500, Content).send(30, 600, Content).sent(30, 500).
				send(40, 700, Content).sent(40, 500).left(90, 700),
			want: "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; gap 70: engine 10 send_queue 60; gap 0:",
		},
		{
			name:  "a blocked write leaves in pieces",
			steps: fresh.request(10, 100).send(20, 9000, Content).left(25, 4000).left(35, 8000).sent(50, 9000),
			want:  "first 40; ttft 40: wake_to_run 1 reader 1 engine 8 send_queue 30",
		},
		{
			name:  "loopback: the bytes leave inside the send call",
			steps: fresh.request(10, 100).send(20, 500, Content).left(21, 500).sent(24, 500).write(30, 30, 600, Content),
			want:  "first 11; ttft 11: wake_to_run 1 reader 1 engine 8 send_queue 1; gap 9: engine 9",
		},
		{
			name:  "headers alone, then content",
			steps: fresh.request(10, 100).write(15, 16, 200, Headers).write(30, 31, 500, Content).write(35, 35, 600, Content),
			want:  "first 6; ttft 21: wake_to_run 1 reader 1 engine 18 send_queue 1; gap 4: engine 4",
		},
		{
			name:  "a chunk that names the role alone",
			steps: fresh.request(10, 100).write(15, 15, 200, Headers).write(17, 17, 300, Role).write(30, 30, 500, Content),
			want:  "first 5; ttft 20: wake_to_run 1 reader 1 engine 18",
		},
		{
			name:  "[DONE] and the closing chunk end no gap",
			steps: fresh.request(10, 100).write(20, 20, 500, Content).write(50, 50, 514, End).write(60, 60, 519, End),
			want:  "first 10; ttft 10: wake_to_run 1 reader 1 engine 8",
		},
		{
			name:  "an answer without content has a first write and no TTFT",
			steps: fresh.request(10, 100).write(20, 20, 200, Headers).write(21, 21, 205, End),
			want:  "first 10",
		},
		{
			name:  "a gap does not reach across exchanges",
			steps: fresh.request(10, 100).write(20, 20, 500, Content).request(90, 200).write(95, 95, 900, Headers).write(99, 99, 950, Content),
			want:  "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; first 5; ttft 9: wake_to_run 1 reader 1 engine 7",
		},
		{
			name: "more than four writes wait: the fifth is joined to the fourth",
			steps: fresh.request(10, 100).send(20, 500, Content).sent(20, 0).send(21, 600, Content).send(22, 700, Content).
				send(23, 800, Content).send(24, 900, Content).left(40, 800).left(50, 900),
			want: "first 30; ttft 30: wake_to_run 1 reader 1 engine 8 send_queue 20; gap 0:; gap 0:; gap 10: send_queue 10",
		},
		{
			name:  "a retransmission gives no new position",
			steps: fresh.request(10, 100).write(20, 20, 500, Content).left(25, 500).left(225, 500).write(230, 230, 600, Content),
			want:  "first 10; ttft 10: wake_to_run 1 reader 1 engine 8; gap 210: engine 210",
		},
		{
			name:  "bytes that came again give no new position either",
			steps: fresh.arrived(10, 100).arrived(14, 100).ran(15).read(16, 100).write(20, 20, 500, Content),
			want:  "first 10; ttft 10: wake_to_run 5 reader 1 engine 4",
		},
		{
			name: "positions wrap at 32 bits, in both directions",
			steps: fresh.arrived(5, math.MaxUint32-20).read(6, math.MaxUint32-20).write(7, 7, math.MaxUint32-10, Content).
				request(10, 79).write(20, 21, 489, Content).write(25, 25, 589, Content),
			want: "first 2; ttft 2: reader 1 engine 1; first 11; ttft 11: wake_to_run 1 reader 1 engine 8 send_queue 1; gap 4: engine 4",
		},
		{
			name:  "met in mid-answer: gaps from the second record on",
			steps: timeline{}.write(10, 10, 500, Content).write(15, 15, 600, Content).write(18, 19, 700, Content),
			want:  "gap 5: engine 5; gap 4: engine 3 send_queue 1",
		},
		{
			name:  "met after the request had arrived: no TTFT, then a whole exchange",
			steps: timeline{}.read(5, 100).write(10, 10, 500, Content).request(20, 200).write(25, 25, 600, Content),
			want:  "first 5; ttft 5: wake_to_run 1 reader 1 engine 3",
		},
		{
			name:  "no send start is seen: a write begins when it returns",
			steps: fresh.request(10, 100).send(25, 500, Content).sent(25, 500),
			want:  "first 15; ttft 15: wake_to_run 1 reader 1 engine 13",
		},
		{
			name:  "a record handed in before the one before it had left: no engine in the gap",
			steps: fresh.request(10, 100).send(20, 500, Content).sent(20, 0).send(22, 600, Content).left(30, 500).left(33, 600),
			want:  "first 20; ttft 20: wake_to_run 1 reader 1 engine 8 send_queue 10; gap 3: send_queue 3",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := Replay(c.steps, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			if got := toldAll(out); got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestReplayKeepsAliveExchangesApart(t *testing.T) {
	l := timeline{}.established(0).accepted(0)
	var want []string
	for i := range 50 {
		at := 100 * i
		l = l.request(at+10, uint32(100*(i+1))).write(at+12+i, at+12+i, uint32(500*(i+1)), Content)
		parts := fmt.Sprintf("first %d; ttft %d: wake_to_run 1 reader 1", 2+i, 2+i)
		if i > 0 {
			parts += fmt.Sprintf(" engine %d", i)
		}
		want = append(want, parts)
	}
	out, err := Replay(l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := toldAll(out); got != strings.Join(want, "; ") {
		t.Errorf("got  %s\nwant %s", got, strings.Join(want, "; "))
	}
	if n := out[len(out)-1].Exchange; n != 50 {
		t.Errorf("the last exchange is number %d, want 50", n)
	}
}

func TestReplayRefuses(t *testing.T) {
	fresh := timeline{}.established(0).accepted(0)
	for _, c := range []struct {
		name  string
		steps timeline
		want  error
		also  string // outcomes that there are all the same
	}{
		{"a step of no known kind", fresh.add(5, 99, 0, 0), ErrStep, ""},
		{"kind 0", fresh.add(5, 0, 0, 0), ErrStep, ""},
		{
			"a first write that left before it began",
			fresh.request(10, 100).send(20, 500, Content).sent(19, 500).write(25, 25, 600, Content),
			ErrTime, "gap 6: engine 6",
		},
		{"an answer that began before its request", fresh.arrived(50, 100).read(52, 100).write(40, 60, 500, Content), ErrTime, ""},
		{"a read later than the answer left", fresh.arrived(10, 100).read(90, 100).write(20, 30, 500, Content), ErrTime, ""},
		{"an accept later than the answer left", fresh.arrived(10, 100).accepted(90).read(15, 100).write(20, 30, 500, Content), ErrTime, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := Replay(c.steps, Options{})
			if !errors.Is(err, c.want) || toldAll(out) != c.also {
				t.Errorf("the error is %v and the outcomes are %q, want %v and %q", err, toldAll(out), c.want, c.also)
			}
		})
	}
}

func TestReplayClampsAGapWhoseStepsAreOutOfOrder(t *testing.T) {
	l := timeline{}.established(0).accepted(0).request(10, 100).write(20, 20, 500, Content)
	for _, c := range []struct {
		name       string
		start, end int
		want       string
	}{
		{"it left before it began", 40, 30, "gap 10: engine 10"},
		{"it left before the one before it", 15, 18, "gap 0:"},
		{"it began before the one before it left", 15, 30, "gap 10: send_queue 10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := Replay(l.send(c.start, 600, Content).sent(c.end, 600), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got := told(out[len(out)-1])[0]; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
