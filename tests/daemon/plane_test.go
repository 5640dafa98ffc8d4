// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/transport/pkitest"
	"github.com/velo-agent/velo-agent/plane/wire"
)

const (
	planeFails  = "the plane does not run"
	planeServes = "plane serving"
	planeFamily = "velo_streaming_mux_live_slots"
)

// open makes a folder that the daemon's user may write into, for the discovery.
func open(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// hosted waits until one node is in the discovery, and returns it.
func hosted(t *testing.T, path string) wire.InstanceID {
	t.Helper()
	var id wire.InstanceID
	eventually(t, "the node is in the discovery", patience, func() error {
		list, err := registered(path)
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("there are %d", len(list))
		}
		if err == nil {
			id = list[0]
		}
		return err
	})
	return id
}

func registered(path string) (list []wire.InstanceID, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Peers []struct {
			Instance wire.InstanceID `json:"instance_id"`
		}
	}
	err = json.Unmarshal(b, &file)
	for _, p := range file.Peers {
		list = append(list, p.Instance)
	}
	return list, err
}

// peer starts a node that finds others by the discovery.
func peer(t *testing.T, path string) *plane.Node {
	t.Helper()
	n, err := plane.New(plane.Options{
		Listen:    []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}},
		Discovery: discovery.NewFile(path),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// TestPlane: the hosted node is found, says hello, answers, shows its metrics, and at
// SIGTERM leaves the discovery and ends in order.
func TestPlane(t *testing.T) {
	t.Parallel()
	peers := filepath.Join(open(t), "peers.json")
	d := start(t, fmt.Sprintf("plane: {enabled: true, listen: '127.0.0.1:0', discovery: %s}", peers))
	n := peer(t, peers)
	to := hosted(t, peers).Worker()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reply, err := n.Messages().Call(ctx, to, wire.HandlerListHandlers, []byte("null"))
	if err != nil {
		t.Fatal(err)
	}
	var handlers wire.HandlersAnswer
	if err := json.Unmarshal(reply, &handlers); err != nil || !slices.Contains(handlers.Handlers, wire.HandlerAttach) {
		t.Errorf("the node serves %v (%v), not %s", handlers.Handlers, err, wire.HandlerAttach)
	}
	if err := n.Messages().Healthy(ctx, to); err != nil {
		t.Errorf("asked on a new connection: %v", err)
	}
	// There is no application in the daemon yet, and no anchor.
	if _, err := n.Attach(ctx, wire.Handle{Hi: to, Lo: 1}); !errors.Is(err, plane.ErrRefused) {
		t.Errorf("attaching to an anchor that is not there: %v", err)
	}
	d.becomes(t, 0, planeFamily)
	d.becomes(t, 1, "velo_streaming_anchor_operations_total", "operation", "attach", "outcome", "error")
	d.fulfils(t, "it heard", func(n float64) bool { return n >= 3 }, "velo_transport_frames_total", "direction", "inbound", "message_type", "message")

	d.stop(t)
	if list, err := registered(peers); err != nil || len(list) != 0 {
		t.Errorf("the discovery has %v (%v) when the daemon has ended", list, err)
	}
	for _, said := range []string{planeServes, "plane stopped"} {
		if got := len(lines(d.said(), said)); got != 1 {
			t.Errorf("the log says %d times, not once: %s", got, said)
		}
	}
	for _, bad := range []string{"cut off", "level=ERROR", "leaving the discovery"} {
		if l := lines(d.said(), bad); len(l) > 0 {
			t.Errorf("the log complains: %v", l)
		}
	}
	if _, err := n.Messages().Call(ctx, to, wire.HandlerListHandlers, []byte("null")); err == nil {
		t.Error("the node answers still")
	}
}

// TestPlaneDrains: the node goes first and leaves the discovery, while a scrape under way
// may still be read to its end.
func TestPlaneDrains(t *testing.T) {
	t.Parallel()
	peers := filepath.Join(open(t), "peers.json")
	d := startBusy(t, fmt.Sprintf("drain_timeout: 1m\nplane: {enabled: true, listen: '127.0.0.1:0', discovery: %s}", peers))
	n := peer(t, peers)
	to := hosted(t, peers).Worker()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.Messages().Healthy(ctx, to); err != nil {
		t.Fatal(err)
	}
	// A reader that reads no further keeps the daemon, and not the plane.
	reader := d.readSlowly(t)
	d.signal(t, unix.SIGTERM)
	eventually(t, "the node has ended", patience, func() error {
		if lines(d.said(), "plane stopped") == nil {
			return errors.New("the log does not say so")
		}
		return nil
	})
	if list, err := registered(peers); err != nil || len(list) != 0 {
		t.Errorf("the discovery has %v (%v) when the node has ended", list, err)
	}
	if _, err := n.Attach(ctx, wire.Handle{Hi: to, Lo: 1}); err == nil || errors.Is(err, plane.ErrRefused) {
		t.Errorf("attaching to the node that has ended: %v", err)
	}
	select {
	case <-d.Ended():
		t.Error("the daemon did not wait for the request under way")
	default:
	}
	reader.rest(t)
	if code := d.wait(t, patience); code != 0 {
		t.Errorf("stopped with code %d", code)
	}
}

// onlyOnce waits until the log says of the plane what is wrong, and looks a while later
// whether it said so once, with metrics up throughout.
func (d *daemon) onlyOnce(t *testing.T, what string) {
	t.Helper()
	eventually(t, "it is said what is wrong", patience, func() error {
		if lines(d.said(), planeFails) == nil {
			return errors.New("the log does not say so")
		}
		return nil
	})
	time.Sleep(5 * time.Second) // longer than two tries
	if l := lines(d.said(), planeFails); len(l) != 1 || !strings.Contains(l[0], what) {
		t.Errorf("the log says %d times, not once, what is wrong with %s: %v", len(l), what, l)
	}
	p, err := d.metrics()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.value("velo_agent_watched_ports"); !ok {
		t.Error("the daemon's own metrics are not there")
	}
	if p[planeFamily] != nil {
		t.Error("there are metrics of a node that does not run: absent is not zero")
	}
}

// served waits for the node and its metrics.
func (d *daemon) served(t *testing.T) {
	t.Helper()
	d.becomes(t, 0, planeFamily)
	if n := len(lines(d.said(), planeServes)); n != 1 {
		t.Errorf("the log says %d times, not once: %s", n, planeServes)
	}
}

// TestPlanePortInUse: the node serves as soon as its port is free.
func TestPlanePortInUse(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	defer l.Close()
	address := l.Addr().String()
	d := start(t, fmt.Sprintf("plane: {enabled: true, listen: %q}", address))
	d.onlyOnce(t, address)
	l.Close()
	d.served(t)
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	d.stop(t)
}

// TestPlaneCertificate: the node serves as soon as its certificate can be read.
func TestPlaneCertificate(t *testing.T) {
	t.Parallel()
	dir := open(t)
	authority := pkitest.New(t)
	cert, key := authority.Issue(t, "spiffe://cluster/agent")
	files := map[string]string{"cert": cert, "key": key, "ca": authority.File}
	settings := "plane: {enabled: true, listen: '127.0.0.1:0', tls_allow: ['spiffe://cluster/agent=*']"
	for name, from := range files {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = filepath.Join(dir, name+".pem")
		settings += fmt.Sprintf(", tls_%s: %s", name, files[name])
		if err := os.WriteFile(files[name], b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(files["key"], 0o600); err != nil { // root's
		t.Fatal(err)
	}
	d := start(t, settings+"}")
	d.onlyOnce(t, files["key"])
	if err := os.Chmod(files["key"], 0o644); err != nil {
		t.Fatal(err)
	}
	d.served(t)
	d.stop(t)
}
