// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"errors"
	"fmt"
)

// What is wrong with steps that cannot be replayed.
var (
	ErrStep      = errors.New("a step of no known kind")
	ErrTime      = errors.New("impossible time")
	ErrTruncated = errors.New("the flight recorder no longer holds the beginning of the interval")
)

// Breakdown computes the trace's interval from its steps. ErrTruncated means that
// they do not reach back far enough; Counted is then what there is.
func (t *Trace) Breakdown(opts Options) (Breakdown, error) {
	outcomes, err := Replay(t.Steps, opts)
	for i := len(outcomes) - 1; i >= 0; i-- {
		o := outcomes[i]
		if o.Kind == t.Kind && uint32(o.Pos) == uint32(t.Pos) && o.Begin == t.Begin {
			return o.Breakdown, nil
		}
	}
	if err != nil {
		return Breakdown{}, err
	}
	return Breakdown{}, fmt.Errorf("%w: %d older steps are gone", ErrTruncated, t.Lost)
}
