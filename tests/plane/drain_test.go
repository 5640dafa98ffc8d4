// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
)

// TestDrain lets running streams complete, and nothing new begin.
func TestDrain(t *testing.T) {
	for _, side := range []string{"consumer", "producer"} {
		t.Run(side, func(t *testing.T) {
			watch(t)
			n := pick(512, faultStreams)
			producer, consumer := pair(t, plane.Options{}, plane.Options{})
			drained := map[string]*site{"consumer": consumer, "producer": producer}[side]
			c := gather(t, producer, consumer, 0, n, 4)
			free, err := consumer.NewAnchor(plane.AnchorOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c.live(t)

			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			err = drained.Drain(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("draining with streams that run: %v", err)
			}
			left := fmt.Sprintf("%d anchors and 0 senders", n)
			if side == "producer" {
				left = fmt.Sprintf("0 anchors and %d senders", n)
			}
			if err == nil || !strings.Contains(err.Error(), left) {
				t.Errorf("it says %v, want %q in it", err, left)
			}
			if side == "consumer" {
				if _, err := producer.Attach(t.Context(), free.Handle()); !errors.Is(err, messenger.ErrShuttingDown) {
					t.Errorf("attaching to a node that drains: %v", err)
				} else {
					t.Log(err)
				}
			}
			free.Close()

			done := make(chan error, 1)
			go func() { done <- drained.Drain(t.Context()) }()
			c.more(t, 4*n) // they go on
			select {
			case err := <-done:
				t.Errorf("it says that it is drained, with %d streams running: %v", n, err)
			default:
			}
			c.complete(t)
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Error("it does not return")
			}
			quiet(t, producer, consumer)
		})
	}
}
