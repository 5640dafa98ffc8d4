// SPDX-License-Identifier: Apache-2.0

// Package peers installs and starts real model servers for tests and the demo,
// and streams from them as an OpenAI-style client with a clock of its own.
//
// Nothing of a peer enters the project: everything is installed into a scratch
// folder (a Python virtual environment, a tiny model with random weights made on
// the spot) at pinned versions, and every server listens on the loopback
// address. A peer that cannot be installed on this machine gives an error that
// wraps [ErrUnavailable], so that a test can skip with the reason.
//
// # What the servers write
//
// Seen with strace for streamed answers; one line is one system call, sizes in
// bytes are typical. One token is one event, but for a token that ends inside a
// UTF-8 character, which makes none.
//
//	llama.cpp's server (xllamacpp), HTTP port, sendto
//	  185  headers alone, when the first result is there (a request that waits
//	       for a slot has no headers yet); the first chunk follows at once
//	  490  one chunk: the role-only event and the first content event (rarely
//	       the role alone, 256 bytes, or no role at all)
//	  240  one chunk with one content event, for each later token
//	  760  finish event, and usage where it was asked for
//	   19  "[DONE]" in a chunk of its own
//	    3  "0\r\n"
//	    2  "\r\n"; then shutdown: the connection ends with each streamed answer,
//	       whatever the Keep-Alive header says
//
//	Dynamo's frontend, HTTP port, writev
//	  142  headers alone, when the worker has taken the request, which may be
//	       long before the first token; they share a call with the first
//	       content where the frontend is late
//	  250  one chunk: the first content event, whose delta carries the role too
//	  225  one chunk with one content event, for each later token; tokens that
//	       came close together share a call, a chunk for each
//	  725  last content, finish, usage, "[DONE]" and the last chunk, four chunks
//	       in one call; sometimes in two. The connection stays.
//
//	Dynamo's mocker, response plane, writev; it connects to the frontend, which
//	listens and sends nothing
//	   99  subject
//	   38  "no error"
//	  278  first token
//	  160  each later token, never two in one call
//	  281  finish
//	   41  "complete_final"
//	   34  "sentinel"; then the frontend shuts its side, and the mocker closes
//
//	Dynamo's request plane: the frontend connects and sends 1224 bytes a request,
//	several requests in one writev under load; the mocker answers each with 4
//	zero bytes.
package peers
