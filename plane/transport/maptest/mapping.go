// SPDX-License-Identifier: Apache-2.0

// Package maptest maps ports for tests, as the host of a container does.
package maptest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Mapping is a port of loopback that is forwarded to another.
type Mapping struct {
	Outside, Inside string       // HOST:PORT
	Taken           atomic.Int64 // connections
}

// Forward maps a port to one on which nobody listens yet, until the test ends.
func Forward(t *testing.T) *Mapping {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &Mapping{Outside: l.Addr().String(), Inside: free.Addr().String()}
	free.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", m.Inside)
			if err != nil {
				in.Close()
				continue
			}
			m.Taken.Add(1)
			for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(c[0], c[1])
					c[0].Close()
					c[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { // after those who were registered later, the nodes, have closed
		l.Close()
		wg.Wait()
	})
	return m
}
