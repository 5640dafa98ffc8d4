// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// moment is a time that nobody sets: which boot of the host, and CLOCK_BOOTTIME.
//
// The age of a snapshot is the sum of until over the snapshots behind it. The
// wall clock has no part in it. The time that the host was off does not count:
// after a week's outage the hours before it are still there.
type moment struct {
	boot  uint64
	since time.Duration
}

// until returns how much time lies at least between m and n: within one boot
// exactly, else what the new boot has lasted.
func (m moment) until(n moment) time.Duration {
	if m.boot == n.boot {
		return max(0, n.since-m.since)
	}
	return n.since
}

// clock returns a function that tells the present moment. Where the id of the boot
// cannot be read, all boots count as one and a restart as no time.
func clock() func() (moment, error) {
	var boot uint64
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		h := fnv.New64a()
		h.Write(bytes.TrimSpace(id))
		boot = h.Sum64()
	}
	return func() (moment, error) {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			return moment{}, fmt.Errorf("reading CLOCK_BOOTTIME: %w", err)
		}
		return moment{boot, time.Duration(ts.Nano())}, nil
	}
}
