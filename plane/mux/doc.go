// SPDX-License-Identifier: Apache-2.0

// Package mux carries many streams over the few connections to a peer: velo's messenger
// mux, both versions. It owns batches, slots, sequence numbers, epochs, credit and the
// buffers between a connection's reader and the consumers.
//
// A slot's owner is its producer's side ([Owner]); its receiver is the consumer's side,
// which has an [Inbox]. A [Peer] has both kinds, in tables of their own. No goroutine,
// timer or channel belongs to a stream: records are staged by whoever sends them, written
// by the connection's writer, which pulls batches ([Peer.Take]), and taken by the
// connection's reader ([Mux.Batch]), which never waits. It puts them into the inboxes, for
// goroutines that wait for one each ([Inbox.Await]), or hands all that a batch brought to
// a [Poller], as one run.
package mux
