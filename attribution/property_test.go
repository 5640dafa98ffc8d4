// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// addsUp holds outcomes to principle 1: the stages partition the interval.
func addsUp(t *testing.T, outcomes []Outcome, clean bool) {
	t.Helper()
	for _, o := range outcomes {
		var sum time.Duration
		for s, d := range o.Stages {
			if d < 0 {
				t.Errorf("%v of %+v is negative", Stage(s), o)
			}
			sum += d
		}
		if sum != o.Total {
			t.Errorf("the stages of %+v add up to %v, not %v", o, sum, o.Total)
		}
		if o.Kind != 0 && clean && o.Total != o.End-o.Begin {
			t.Errorf("%+v lasts from %v to %v", o, o.Begin, o.End)
		}
	}
}

// TestReplayAddsUp makes connections whose steps come in a possible order, and
// others of plain noise.
func TestReplayAddsUp(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		out, err := Replay(possible(r, 400), Options{NoSched: seed%3 == 0})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(out) == 0 {
			t.Errorf("seed %d: no outcome", seed)
		}
		addsUp(t, out, true)

		out, err = Replay(noise(r, 400), Options{})
		if err != nil && !errors.Is(err, ErrTime) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		addsUp(t, out, false)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// possible plays a connection: time only goes on, a read takes what is there, and
// what leaves was handed in.
func possible(r *rand.Rand, n int) []Step {
	var steps []Step
	arrived, written := r.Uint32(), r.Uint32()
	read, left := arrived, written
	now := time.Hour
	add := func(k StepKind, pos uint32, class WriteClass) {
		steps = append(steps, Step{Time: now, Pos: uint64(pos), Kind: k, Class: class})
	}
	add(Established, 0, 0)
	add(Accepted, 0, 0)
	add(Arrived, arrived, 0)
	add(Read, read, 0)
	for range n {
		now += time.Duration(r.ExpFloat64() * float64(time.Millisecond))
		switch r.IntN(6) {
		case 0:
			arrived += 1 + r.Uint32N(2000)
			add(Arrived, arrived, 0)
		case 1:
			// An answer that has not left is not known any more once the next
			// request is answered: such an exchange counts as an impossible time.
			if arrived == read || left != written {
				continue
			}
			read += 1 + r.Uint32N(arrived-read)
			if r.IntN(2) == 0 {
				add(Ran, read, 0)
				if r.IntN(2) == 0 {
					now += time.Microsecond
					add(Handed, read, 0)
				}
				now += time.Microsecond
			}
			add(Read, read, WriteClass(r.IntN(20)/19))
		case 2:
			written += 1 + r.Uint32N(4000)
			add(Send, written, WriteClass(r.IntN(int(End)+1)))
		case 3:
			add(Cut, written, 1)
		case 4, 5:
			left += r.Uint32N(written - left + 1)
			add(Sent+StepKind(r.IntN(2)), left, 0)
		}
	}
	return steps
}

func noise(r *rand.Rand, n int) []Step {
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = Step{
			Time: time.Duration(r.Int64N(int64(time.Second))), Pos: uint64(r.Uint32N(64)),
			Kind: StepKind(1 + r.IntN(int(numStepKinds)-1)), Class: WriteClass(r.IntN(6)),
		}
	}
	return steps
}

// stepBytes is how FuzzReplay writes a step: 4 bytes of time in µs, 4 of position,
// kind, class.
const stepBytes = 10

func FuzzReplay(f *testing.F) {
	encode := func(steps []Step) []byte {
		var b []byte
		for _, s := range steps {
			b = binary.LittleEndian.AppendUint32(b, uint32((s.Time-time.Hour)/time.Microsecond))
			b = binary.LittleEndian.AppendUint32(b, uint32(s.Pos))
			b = append(b, byte(s.Kind), byte(s.Class))
		}
		return b
	}
	f.Add([]byte{}, false)
	f.Add(encode(timeline{}.established(0).accepted(0).request(10, 100).write(20, 20, 500, Content)), false)
	f.Add(encode(timeline{}.request(10, 100).send(20, 500, Content).sent(19, 500)), true)
	f.Add(encode(timeline{}.add(1, 99, 0, 0)), false)
	f.Add(encode(noise(rand.New(rand.NewPCG(1, 2)), 40)), true)
	f.Fuzz(func(t *testing.T, b []byte, noSched bool) {
		var steps []Step
		for ; len(b) >= stepBytes; b = b[stepBytes:] {
			steps = append(steps, Step{
				Time: time.Duration(binary.LittleEndian.Uint32(b)) * time.Microsecond, Pos: uint64(binary.LittleEndian.Uint32(b[4:])),
				Kind: StepKind(b[8]), Class: WriteClass(b[9]),
			})
		}
		out, err := Replay(steps, Options{NoSched: noSched})
		if err != nil && !errors.Is(err, ErrStep) && !errors.Is(err, ErrTime) {
			t.Errorf("the error wraps no sentinel: %v", err)
		}
		addsUp(t, out, false)
	})
}
