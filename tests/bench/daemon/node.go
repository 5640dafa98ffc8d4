// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/velo-agent/velo-agent/preflight"
	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

// firstPort is where the servers' ports begin, the same in every namespace and others
// in every run: a daemon watches its ports in all namespaces of the node.
var firstPort = 11_000 + os.Getpid()%1000*5

// node is what is watched: a server in each network namespace, and its clients, whose
// sockets this process holds.
type node struct {
	plan
	servers []*live.Child
	conns   []*client
	each    int // connections to each port, so far
}

// client is one connection.
type client struct {
	net.Conn
	server *live.Child
	port   int
}

func (n *node) portNumbers() (list []int) {
	for i := range n.ports {
		list = append(list, firstPort+i)
	}
	return list
}

// portList is in the form of a YAML list.
func (n *node) portList() string { return strings.ReplaceAll(fmt.Sprint(n.portNumbers()), " ", ", ") }

func (n *node) start() error {
	for range n.namespaces {
		c, err := live.StartChild(true, serverPart)
		if err != nil {
			return err
		}
		n.servers = append(n.servers, c)
		if _, err := c.Ask("listen", firstPort, n.ports); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) close() {
	for _, c := range n.conns {
		c.Close()
	}
	for _, c := range n.servers {
		c.Stop()
	}
}

// dial opens so many more connections to each port.
func (n *node) dial(each int) error {
	n.each += each
	for _, s := range n.servers {
		// A socket stays in the namespace of the thread that made it.
		err := preflight.Host{}.InNetNS(s.PID, func() error {
			for _, port := range n.portNumbers() {
				for range each {
					c, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))))
					if err != nil {
						return err
					}
					n.conns = append(n.conns, &client{c, s, port})
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("opening connections to server %d: %w", s.PID, err)
		}
		for { // until the server has accepted them all
			held, err := s.Ask("held")
			if err != nil {
				return err
			}
			if count, _ := strconv.Atoi(held); count >= n.ports*n.each {
				break
			}
		}
	}
	return nil
}

// talk makes one exchange on every connection, some at a time, and returns how many
// that were.
func (n *node) talk() (int, error) {
	var wg sync.WaitGroup
	failed := make(chan error, len(n.conns))
	turn := make(chan struct{}, 64)
	for _, c := range n.conns {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			if err := c.exchange(); err != nil {
				failed <- fmt.Errorf("an exchange on port %d: %w", c.port, err)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return len(n.conns), nil
	}
}

// exchange asks and reads all tokens of the answer.
func (c *client) exchange() error {
	if _, err := c.Write([]byte("a question\n")); err != nil {
		return err
	}
	r := bufio.NewReaderSize(c, 256)
	for range tokens {
		if _, err := r.ReadSlice('\n'); err != nil {
			return err
		}
	}
	if r.Buffered() > 0 {
		return errors.New("something follows the answer")
	}
	return nil
}
