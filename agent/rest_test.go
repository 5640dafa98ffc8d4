// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/velo-agent/velo-agent/diagnosis"
)

// TestRest: a port at which nothing happened is not told again, and who fills it in has
// what a whole reading has.
func TestRest(t *testing.T) {
	a, b := listen(t), listen(t)
	s := open(t, Options{Watch: Watch{Ports: []uint16{a.port, b.port}}, ExactAccept: true})
	p := a.connect(t)
	exchange := func() {
		t.Helper()
		p.ask(t)
		p.answer(t)
	}
	var last *diagnosis.Measured
	read := func(how Reading) (resting []uint16) {
		t.Helper()
		m, err := s.measure(how)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range m.Rest {
			resting = append(resting, r.Port)
		}
		if err := m.fill(last); err != nil {
			t.Fatal(err)
		}
		last = m.Measured
		return resting
	}
	want := func(what string, got []uint16, ports ...uint16) {
		t.Helper()
		slices.Sort(got)
		slices.Sort(ports)
		if !slices.Equal(got, ports) {
			t.Errorf("%s: ports %v rest, want %v", what, got, ports)
		}
	}
	exchange()
	read(Reading{})
	read(Reading{Lazy: true}) // what ended after the answer was written
	want("nothing happened", read(Reading{Lazy: true}), a.port, b.port)
	exchange()
	want("an exchange", read(Reading{Lazy: true}), b.port)
	whole, err := s.Measure()
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole.Ports {
		got, want := last.Ports[i], whole.Ports[i]
		if got.Port != want.Port || *got.Exchanges != *want.Exchanges || got.TTFT.Total != want.TTFT.Total ||
			*got.Accept.Arrivals != *want.Accept.Arrivals || got.Process != want.Process || len(got.Sched) != len(want.Sched) {
			t.Errorf("port %d is %+v, a whole reading has %+v", want.Port, got, want)
		}
	}
	if n := *last.Ports[0].Exchanges + *last.Ports[1].Exchanges; n != 2 {
		t.Errorf("%d exchanges, want 2", n)
	}
	read(Reading{Lazy: true})
	c, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want("a connection that waits", read(Reading{Lazy: true}), a.port)
	if d := last.Find(&diagnosis.Port{Port: b.port, NetNS: last.Ports[0].NetNS}, 0).Accept.Depth; d != 1 {
		t.Errorf("%d wait to be accepted, want 1", d)
	}
	read(Reading{Lazy: true})
	if err := s.mark(); err != nil {
		t.Fatal(err)
	}
	want("after a look", read(Reading{Lazy: true}))
}

// TestFill: a reading that refers to what is not known is refused.
func TestFill(t *testing.T) {
	one := &diagnosis.Measured{Ports: []diagnosis.Port{{Port: 1}}}
	measures := func(at int) measured {
		return measured{Measured: &diagnosis.Measured{}, Rest: []rest{{At: at, Port: 1}}}
	}
	for name, c := range map[string]struct {
		m      measured
		before *diagnosis.Measured
	}{
		"none before":  {measures(0), nil},
		"another port": {measures(0), &diagnosis.Measured{Ports: []diagnosis.Port{{Port: 2}}}},
		"no such":      {measures(1), one},
		"negative":     {measures(-1), one},
	} {
		if err := c.m.fill(c.before); !errors.Is(err, errRest) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	good := measures(0)
	if err := good.fill(one); err != nil || len(good.Ports) != 1 || good.Ports[0].Port != 1 {
		t.Errorf("the reading has %v: %v", good.Ports, err)
	}
	if err := (&measured{}).fill(one); err == nil {
		t.Error("an empty reading was taken")
	}
}
