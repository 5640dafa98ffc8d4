// SPDX-License-Identifier: Apache-2.0

// Package bench measures what the probes cost: probes/ their price on traffic,
// scale/ memory and time with many connections. Agent, server and client are child
// processes, so that each one's CPU time, memory and context switches are its own;
// they are started again from the running binary and talk over a pipe.
//
// Every cost is a difference inside a pair (off, on, off): the neighbours in time
// take away what the machine does by itself. The arms take turns in random order,
// one of them ("null") with nothing attached, and the intervals come from a
// bootstrap over the rounds.
package bench
