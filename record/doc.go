// SPDX-License-Identifier: Apache-2.0

// Package record owns the rolling local store of snapshots: what the host was
// like every few seconds, for the question "what was it at 14:03?". To this
// package a snapshot is opaque bytes with a time.
//
// A store is a folder of segments, files that are only appended to. Each holds
// frames, one a snapshot, with a checksum over all of it (see frame.go), and
// is named by the sequence number of its first one. The oldest segments are
// deleted whole. There is no index: opening a store reads it once, and a reader
// without a writer reads all of it.
//
// Order is by sequence number, age by the clock that runs since the host
// started (see [moment]); the wall clock may jump and only says which snapshots
// [Range] is asked for.
package record
