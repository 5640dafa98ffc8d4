// SPDX-License-Identifier: Apache-2.0

// Package wire is the codec of velo's wire protocol: the bytes of frames, message
// headers, batches, records, stream frames, addresses and the control plane's bodies.
//
// It owns layout and nothing else: pure functions from bytes to values and back, with
// no I/O, no goroutine and no state of a connection. Functions named Append write what
// velo writes, byte for byte; functions named Parse also take the other forms that velo's
// readers take, where their doc comments say so. What they return are views into their
// input where the doc comment says so. A peer's bytes are not trusted: nothing is allocated
// for a declared length that is not there, nesting is not followed, and every fault is an
// error that wraps one of the sentinels here.
//
// Byte order is mixed, as the protocol has it: preambles, batches and records are
// big-endian, message, response and ack headers little-endian.
package wire
