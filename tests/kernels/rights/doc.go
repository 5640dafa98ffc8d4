// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package rights runs the real command line with rights missing: as an unprivileged
// user, with BTF hidden, and without each capability. It owns the starting of a
// process like that and what its answer must say; what is lost belongs to the agent.
package rights
