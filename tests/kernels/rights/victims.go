// SPDX-License-Identifier: Apache-2.0

//go:build linux

package rights

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// victims are what is watched: a server here with a client that asks it now and
// again, and a listener in another network namespace, held by a process in there.
type victims struct {
	port, away int

	listeners []net.Listener
	holder    *exec.Cmd
	stop      context.CancelFunc
	wg        sync.WaitGroup
}

const (
	askEvery     = 20 * time.Millisecond
	messageBytes = 64
)

func newVictims(ctx context.Context) (*victims, error) {
	v := &victims{}
	ctx, v.stop = context.WithCancel(ctx)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		v.listeners = append(v.listeners, l)
		v.port = l.Addr().(*net.TCPAddr).Port
		v.wg.Go(func() { answerAll(l) })
		v.wg.Go(func() { ask(ctx, l.Addr().String()) })
		err = onThread(v.listenAway)
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// Close ends both.
func (v *victims) Close() error {
	v.stop()
	var errs []error
	for _, l := range v.listeners {
		errs = append(errs, l.Close())
	}
	if v.holder != nil {
		errs = append(errs, v.holder.Process.Kill())
		_ = v.holder.Wait() // "signal: killed"
	}
	v.wg.Wait()
	return errors.Join(errs...)
}

// listenAway moves the calling thread to a network namespace of its own, listens
// there and leaves a process behind that holds the socket.
func (v *victims) listenAway() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making a network namespace: %w", err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return fmt.Errorf("listening in another network namespace: %w", err)
	}
	defer l.Close() // the process in there alone holds it
	v.away = l.Addr().(*net.TCPAddr).Port
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("sharing the listener: %w", err)
	}
	defer f.Close()
	holder := exec.Command("sleep", "3600")
	holder.ExtraFiles = []*os.File{f}
	if err := holder.Start(); err != nil {
		return fmt.Errorf("starting a process in another network namespace: %w", err)
	}
	v.holder = holder
	return nil
}

// answerAll answers each request with one write, until l is closed.
func answerAll(l net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer c.Close()
			buf := make([]byte, messageBytes)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
		})
	}
}

// ask makes an exchange on a connection of its own, time and again.
func ask(ctx context.Context, addr string) {
	buf := make([]byte, messageBytes)
	for {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			if _, err := c.Write(buf); err == nil {
				_, _ = c.Read(buf)
			}
			c.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askEvery):
		}
	}
}
