// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"io"
	"net"

	"github.com/xtaci/smux"
)

type smuxSession struct{ *smux.Session }

func (s smuxSession) open() (io.WriteCloser, error)  { return s.OpenStream() }
func (s smuxSession) accept() (io.ReadCloser, error) { return s.AcceptStream() }

func smuxServer(c net.Conn) (session, error) {
	s, err := smux.Server(c, nil)
	return smuxSession{s}, err
}

func smuxClient(c net.Conn) (session, error) {
	s, err := smux.Client(c, nil)
	return smuxSession{s}, err
}
