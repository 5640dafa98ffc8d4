// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/wire"
)

var roles = map[string]func(){"producer": produce, "consumer": consume}

// offer is what a consumer hands to the producer of a stream.
type offer struct {
	Handle wire.Handle
	Ticket *wire.Ticket // nil: it attaches
}

// words are what processes say to each other, a line of JSON each.
type words struct {
	Peer   wire.PeerInfo
	Offers []offer
}

// child is this test's binary as another process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func play(t *testing.T, name string, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command("/proc/self/exe", args...)}
	c.cmd.Env = append(os.Environ(), role+"="+name)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// kill ends it as kill -9 does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	c.in.Close()
}

func say(w io.Writer, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func hear(r *bufio.Reader, v any) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// offers are anchors to which half of the producers attach.
func offers(ts *takers, n *plane.Node, streams int) (list []offer, err error) {
	for i := range streams {
		a, err := ts.anchor(n, uint64(i))
		if err != nil {
			return nil, err
		}
		o := offer{Handle: a.Handle()}
		if i%2 == 0 {
			if o.Ticket, err = a.Ticket(0); err != nil {
				return nil, err
			}
		}
		list = append(list, o)
	}
	return list, nil
}

// take has senders for offers.
func (ms *makers) take(n *plane.Node, list []offer) error {
	for i, o := range list {
		var s *plane.Sender
		var err error
		if o.Ticket != nil {
			s, err = n.Open(o.Handle, o.Ticket)
		} else {
			s, err = n.Attach(context.Background(), o.Handle)
		}
		if err != nil {
			return err
		}
		ms.add1(s, uint64(i))
	}
	return nil
}

// must ends a process that cannot play its part.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// produce is a process that feeds the streams that it is offered, without end.
func produce() {
	n, err := newSite(plane.Options{})
	must(err)
	say(os.Stdout, words{Peer: n.PeerInfo()})
	var w words
	must(hear(bufio.NewReader(os.Stdin), &w))
	must(n.Register(w.Peer))
	ms := newMakers()
	must(ms.take(n.Node, w.Offers))
	ms.run(context.Background())
	time.Sleep(patience) // to be killed; its parent's end ends it otherwise
}

// consume is a process that offers as many streams as it hears and reads them.
func consume() {
	n, err := newSite(plane.Options{})
	must(err)
	in := bufio.NewReader(os.Stdin)
	var streams int
	must(hear(in, &streams))
	ts := newTakers()
	list, err := offers(ts, n.Node, streams)
	must(err)
	say(os.Stdout, words{n.PeerInfo(), list})
	go ts.run(context.Background())
	for int(ts.begun.Load()) < streams {
		time.Sleep(time.Millisecond)
	}
	say(os.Stdout, ts.begun.Load())
	_, _ = io.Copy(io.Discard, in) // until it is killed, or its parent has gone
}
