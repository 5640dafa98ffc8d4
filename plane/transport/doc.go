// SPDX-License-Identifier: Apache-2.0

// Package transport carries velo's frames over TCP and Unix sockets.
//
// It owns connections and nothing of what they say: it dials and listens, reads
// frames out of one buffer per connection, and writes what is queued and what a Source
// has ready. A connection has one goroutine that reads and one that writes, and no more.
//
// What a peer can cost is bounded: the connections of a listener, those that have said
// nothing yet, the time that an incomplete frame or a stuck write may take, and the
// frames that wait to be written. Every bound that is hit is counted.
package transport
