// SPDX-License-Identifier: Apache-2.0

// Package victims holds the servers under test: small HTTP/1.1 servers in C, Go
// and Python, and nginx, that stream and delay what they are told to and measure
// each delay with their own monotonic clock; and the raw client that drives them
// and stamps what it sends and reads. All stamps are nanoseconds of
// CLOCK_MONOTONIC, so those of victim, client and kernel compare.
//
// A delay that the request's header can name (Case) holds for that request. Those
// before the header is read (accept, reader, handoff) are set on the Victim,
// between two exchanges. Which victim can be disturbed how:
//
//	             c    go   go-http  python  nginx
//	accept       yes  yes  yes      yes     no: not ours
//	reader       yes  yes  yes      yes     no: not ours
//	handoff      yes  yes  no       no: asyncio reads in the woken thread
//	engine, gaps yes  yes  yes      yes     its upstream's
//	send_queue   yes  yes  split    no: asyncio and nginx never block in a write
//	wake_to_run  yes  RunDelay      yes     RunDelay
//
// "split": net/http writes a large chunk in several writes. Everything is built
// or installed below build/.
package victims
