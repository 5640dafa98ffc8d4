// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// What [Options] mean where they are zero.
const (
	DefaultMaxBytes = 256 << 20
	DefaultKeep     = 24 * time.Hour
)

// Into how many segments a full store is cut: how much of it goes when the oldest
// does.
const (
	partsBySize = 64
	partsByAge  = 16
)

// Options say where a store lies and how far it reaches back. Zero values mean
// the default.
type Options struct {
	Dir          string        // created 0700 if missing
	MaxBytes     int64         // of all segments together, default 256 MiB
	Keep         time.Duration // older segments are dropped (see [moment] for age), default 24 h
	SegmentBytes int64         // at which a segment ends, default MaxBytes / 64
	Log          *slog.Logger  // default none
}

// withDefaults fills in zero values, or says which one cannot be.
func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("opening the record: no folder is given")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = max(1, o.MaxBytes/partsBySize)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxBytes < 0 || o.Keep < 0 || o.SegmentBytes < 0 || o.SegmentBytes > o.MaxBytes {
		return o, fmt.Errorf("opening the record: sizes and times must be positive and a segment (%d bytes) no larger than all (%d bytes)",
			o.SegmentBytes, o.MaxBytes)
	}
	return o, nil
}
