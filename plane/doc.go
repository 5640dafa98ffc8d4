// SPDX-License-Identifier: Apache-2.0

// Package plane is a response plane: the path that carries generated tokens from
// workers back to frontends. A [Node] is a peer of velo nodes, in Go or Rust: many
// streams to a peer share a few connections, each stream has a credit window of its own,
// and a consumer that is slow stalls its own stream and no other.
//
// A consumer makes an [Anchor] and hands its handle, best with a ticket, to the
// producer, by whatever way its request travels. The producer opens a [Sender] on it. The
// consumer reads with [Anchor.Recv], one goroutine a stream, or with a [Poller], one
// goroutine for thousands.
//
// The package needs no root, no Prometheus server and nothing else of this project.
package plane
