// SPDX-License-Identifier: Apache-2.0

package peers

import "golang.org/x/sys/unix"

// Now returns CLOCK_MONOTONIC in nanoseconds: the clock of bpf_ktime_get_ns, so
// that a client's stamps can be laid beside those of the probes.
func Now() int64 {
	var ts unix.Timespec
	// The call cannot fail for this clock and a valid pointer.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
