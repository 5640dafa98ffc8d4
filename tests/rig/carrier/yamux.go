// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"io"
	"net"

	"github.com/hashicorp/yamux"
)

type yamuxSession struct{ *yamux.Session }

func (s yamuxSession) open() (io.WriteCloser, error)  { return s.OpenStream() }
func (s yamuxSession) accept() (io.ReadCloser, error) { return s.AcceptStream() }

func yamuxServer(c net.Conn) (session, error) {
	s, err := yamux.Server(c, yamuxConfig())
	return yamuxSession{s}, err
}

func yamuxClient(c net.Conn) (session, error) {
	s, err := yamux.Client(c, yamuxConfig())
	return yamuxSession{s}, err
}

// yamuxConfig is the default, silent: it logs that the other side went at the end.
func yamuxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	return c
}
