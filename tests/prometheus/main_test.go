// SPDX-License-Identifier: Apache-2.0

// Package prometheus holds a test: a real Prometheus scrapes real daemons, which watch
// servers that are disturbed in every way that a family, a panel or a rule is about, and
// nodes of the response plane, one of them hosted by a daemon.
// Every family of the table must then have data, every panel's query and every rule's
// expression must be executed and answer, and every alert must be seen.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// role is set in the environment of a child that plays another part.
const role = "VELO_AGENT_TEST_ROLE"

// lastCPU is shared by a server that is to starve and a hog.
var lastCPU = runtime.NumCPU() - 1

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "serve":
		end(serve())
	case "hog":
		end(hog())
	}
	goleak.VerifyTestMain(m)
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// eventually asks until f has no error; the last one is the test's.
func eventually(t *testing.T, within time.Duration, f func() error) {
	t.Helper()
	if err := until(within, f); err != nil {
		t.Error(err)
	}
}

func until(within time.Duration, f func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// folder is a temporary folder that the daemon's user may enter.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "velo-agent-prometheus-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// freePort is a port of loopback on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// start starts a command that ends with the test, by SIGTERM, and returns how to end
// it sooner.
func start(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(unix.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait() // how it ended is in its log
	}
	t.Cleanup(stop)
	return stop
}

// client keeps no connection: none is left when a test ends.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 15 * time.Second}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   string
}

func get(c *http.Client, url string, header ...string) (answer, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return do(c, r)
}

func do(c *http.Client, r *http.Request) (answer, error) {
	resp, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// wantOK waits for a page.
func wantOK(url string) error {
	a, err := get(client, url)
	if err == nil && a.status != http.StatusOK {
		err = errors.New(a.body)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}
