// SPDX-License-Identifier: Apache-2.0

package victims

import "golang.org/x/sys/unix"

// Now returns CLOCK_MONOTONIC in nanoseconds.
func Now() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}

// PinThread binds the calling OS thread to one CPU. The caller has locked itself
// to its thread.
func PinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}
