// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/velo-agent/velo-agent/tests/rig/carrier"
	"github.com/velo-agent/velo-agent/tests/rig/side"
)

const (
	size      = 160     // bytes of a record
	peers     = 4       // of the producing process
	pace      = 205_000 // records a second in all
	setupPace = 4_000   // streams a second in all, while they are set up
)

// testCase is what every carrier is to do.
type testCase struct {
	streams, records int // records of each stream
	paced, perStream bool
}

func (c testCase) String() string {
	shape, producers := "back-to-back", "peer"
	if c.paced {
		shape = "paced"
	}
	if c.perStream {
		producers = "stream"
	}
	return fmt.Sprintf("%dx%d-%s-%s", c.streams, c.records, shape, producers)
}

var caseName = regexp.MustCompile(`^(\d+)x(\d+)-(paced|back-to-back)-(peer|stream)$`)

func parseCase(name string) (c testCase, err error) {
	m := caseName.FindStringSubmatch(name)
	if m == nil {
		return c, fmt.Errorf("no such case %q: STREAMSxRECORDS-paced|back-to-back-peer|stream, the last says what has a producer of its own", name)
	}
	c.streams, _ = strconv.Atoi(m[1])
	c.records, _ = strconv.Atoi(m[2])
	c.paced, c.perStream = m[3] == "paced", m[4] == "stream"
	if c.streams < peers || c.records < 2 || c.streams > 1<<15 || c.records > 1<<20 {
		return c, fmt.Errorf("case %q: at least %d streams of 2 records, at most 32768 of 1048576", name, peers)
	}
	return c, nil
}

// chooseCases returns the named cases, or the short form's, or all.
func chooseCases(short bool, names string) (cases []testCase, err error) {
	list := split(names)
	if list == nil && short {
		list = []string{
			"2048x64-paced-peer", "2048x64-paced-stream", "2048x64-back-to-back-peer", "2048x64-back-to-back-stream",
			"8192x64-paced-peer", "8192x918-back-to-back-peer",
		}
	}
	for _, name := range list {
		c, err := parseCase(name)
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	if list != nil {
		return cases, nil
	}
	for _, streams := range []int{256, 2048, 8192} {
		for _, records := range []int{64, 918} {
			for _, paced := range []bool{false, true} {
				cases = append(cases, testCase{streams, records, paced, false}, testCase{streams, records, paced, true})
			}
		}
	}
	return cases, nil
}

// arm is a carrier with a consumer's interface.
type arm struct{ carrier, face string }

func (a arm) String() string {
	if a.face == "" {
		return a.carrier
	}
	return a.carrier + "/" + a.face
}

const velo = "velo"

var (
	push = arm{"plane", "push"}
	recv = arm{"plane", "recv"}
	arms = []arm{{carrier: side.Floor}, {carrier: "tcp"}, {carrier: "yamux"}, {carrier: "smux"}, {carrier: "h2"}, {carrier: "grpc"}, {carrier: "quic"}, {carrier: velo}, push, recv}
)

func chooseArms(names string) (chosen []arm, err error) {
	for _, name := range split(names) {
		n := len(chosen)
		for _, a := range arms {
			if a.String() == name || a.carrier == name {
				chosen = append(chosen, a)
			}
		}
		if n == len(chosen) {
			return nil, fmt.Errorf("no such carrier %q: %v", name, arms)
		}
	}
	if names == "" {
		return arms, nil
	}
	return chosen, nil
}

// slow carriers move about 100,000 records a second, whatever they are asked: what they
// show in a case of 8192 x 64 they would show again, for minutes, in a larger one.
var slow = []string{"tcp", "yamux", "smux", "h2"}

const mostSlow = 1_000_000 // records in all

// takesPart reports whether an arm is measured in a case.
func (a arm) takesPart(c testCase) bool {
	switch {
	case a.carrier == side.Floor: // it knows no pace and no producers
		return !c.paced && !c.perStream
	case slices.Contains(slow, a.carrier):
		return c.streams*c.records <= mostSlow
	}
	return true
}

func (a arm) spec(c testCase) *carrier.Spec {
	return &carrier.Spec{
		Carrier: a.carrier, Interface: a.face, Streams: c.streams, Records: c.records, Size: size,
		Paced: c.paced, PerStream: c.perStream, Rate: pace, SetupRate: setupPace, Peers: peers,
	}
}
