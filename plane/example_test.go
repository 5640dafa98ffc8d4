// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
)

// A frontend makes an anchor, hands its handle and ticket to a worker, and reads what the
// worker streams.
func Example() {
	loopback := plane.Options{Listen: []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}}
	frontend, err := plane.New(loopback)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer frontend.Close()
	worker, err := plane.New(loopback)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer worker.Close()
	if err := worker.Register(frontend.PeerInfo()); err != nil {
		fmt.Println(err)
		return
	}

	anchor, err := frontend.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ticket, err := anchor.Ticket(0)
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	go func() { // the worker, which got the handle and the ticket with its request
		sender, err := worker.Open(anchor.Handle(), ticket)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, token := range []string{"The", " answer", " is", " 42."} {
			if err := sender.Send(ctx, []byte(token)); err != nil {
				fmt.Println(err)
				return
			}
		}
		if err := sender.Finalize(); err != nil {
			fmt.Println(err)
		}
	}()

	for {
		token, err := anchor.Recv(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s", token)
	}
	fmt.Println()
	// Output: The answer is 42.
}
