// SPDX-License-Identifier: Apache-2.0

// Package messenger exchanges velo's active messages with peers: calls that wait for an
// answer, messages that do not, and the handlers that take them. It keeps who the peers
// are, one outgoing connection to each, and what waits.
//
// A node dials its peer for whatever it sends, answers included, so two nodes that talk
// have two connections. On every connection that it dials it says _hello first: the peer
// then knows where to answer, and says what handlers it has.
//
// Nobody is trusted. A connection speaks for one worker: the first that its messages name,
// which with TLS its certificate must allow, and which no live connection from elsewhere
// may hold already. A _hello introduces its sender only, and does not move a peer that still
// answers at its old address. Peers, calls, queued messages, staged payloads and handler lists are
// bounded, and one connection gets a part of each bound only.
package messenger
