// SPDX-License-Identifier: Apache-2.0

// Package side is what runs in the processes of a repetition. Each reads commands, a
// JSON line each, and answers each with one; the Rust program in velo/ does the same.
//
//	prepare  both      listen; answers its address, for the other
//	connect  both      to the other's address; answers its usage before there are streams
//	setup    consumer  ask for all streams; answers when each has its first record
//	mark     both      answers its usage; the producer when it has begun all streams
//	wait     consumer  answers when all streams have ended
//	go       producer  hand in all other records; answers when done
//	done     producer  answers its usage
//	rest     both      answers its usage, garbage set aside
//	cycles   consumer  ask for streams as others end; answers when all have
//	         local     let streams live and end, one at a time in each goroutine
//	unattached, prebound  local  make anchors and keep them; answers as rest
package side

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/velo-agent/velo-agent/tests/rig/carrier"
	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// The roles, a process each. Local is alone: streams of the plane that never leave their
// node, and anchors at rest.
const (
	Consumer = "consumer"
	Producer = "producer"
	Local    = "local"
)

// Floor is the carrier of no streams: the same bytes in 64 KiB writes.
const Floor = "floor"

// Command is one line in.
type Command struct {
	Cmd     string          `json:"cmd"`
	Spec    *carrier.Spec   `json:"spec,omitempty"`    // prepare
	Address json.RawMessage `json:"address,omitempty"` // connect
}

// Answer is one line out.
type Answer struct {
	Error   string          `json:"error,omitempty"`
	Address json.RawMessage `json:"address,omitempty"`
	Usage   *Usage          `json:"usage,omitempty"`
	Setup   *load.Quantiles `json:"setup,omitempty"`
	Latency *load.Quantiles `json:"latency,omitempty"`
	BegunNS int64           `json:"begun_ns,omitempty"` // when the first record was handed in
	EndedNS int64           `json:"ended_ns,omitempty"` // when the last stream had ended
	Tasks   int             `json:"tasks,omitempty"`    // goroutines, or tasks of the Rust program
}

// side does what one process does.
type side interface {
	address() any
	carriedBy() any // a carrier.Consumer, a carrier.Producer or nil
	connect(json.RawMessage) error
	do(cmd string, a *Answer) error
}

// Role is what a process of this program was started as, "" if as the driver.
func Role() string {
	if len(os.Args) == 2 && slices.Contains([]string{Consumer, Producer, Local}, os.Args[1]) {
		return os.Args[1]
	}
	return ""
}

// Serve answers commands until stdin ends.
func Serve(role string) {
	var s side
	out := json.NewEncoder(os.Stdout)
	for in := json.NewDecoder(os.Stdin); ; {
		var c Command
		if in.Decode(&c) != nil { // the driver has gone, or wants no more
			os.Exit(0)
		}
		a, err := answer(role, &s, c)
		if err != nil {
			a.Error = err.Error()
		}
		if out.Encode(a) != nil {
			os.Exit(1)
		}
	}
}

func answer(role string, s *side, c Command) (a Answer, err error) {
	if *s == nil && c.Cmd != "prepare" {
		return a, fmt.Errorf("%q before prepare", c.Cmd)
	}
	switch c.Cmd {
	case "prepare":
		if *s, err = prepare(role, c.Spec); err != nil {
			return a, err
		}
		a.Address, err = json.Marshal((*s).address())
		return a, err
	case "connect":
		err = (*s).connect(c.Address)
	default:
		err = (*s).do(c.Cmd, &a)
	}
	if err != nil {
		return a, err
	}
	a.Usage, err = usage((*s).carriedBy())
	return a, err
}

func prepare(role string, spec *carrier.Spec) (side, error) {
	if role == Local {
		return newLocal(spec)
	}
	if spec.Carrier == Floor {
		if role == Consumer {
			return newFloorConsumer(spec)
		}
		return &floorProducer{spec: spec}, nil
	}
	c, ok := carrier.All[spec.Carrier]
	if !ok {
		return nil, fmt.Errorf("there is no carrier %q", spec.Carrier)
	}
	if role == Consumer {
		return newConsumer(spec, c)
	}
	return newProducer(spec, c)
}
