// SPDX-License-Identifier: Apache-2.0

// Package bpf owns what the signals share in the kernel: the maps, their layout
// in Go, and the records of the traced tier. The programs live one folder a
// signal: accept, sockqueue, sched, netloss.
package bpf
