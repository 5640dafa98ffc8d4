// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/preflight"
	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

// missed counts, port by port, the connections that the daemon knows against the
// kernel's own list, and the exchanges against those that were made. Half of the
// connections are older than the daemon.
func missed(ctx context.Context, out *results.Run, n *node, d *live.Daemon, asked int) error {
	time.Sleep(1100 * time.Millisecond) // a reading may be a second old
	page, err := d.Page(ctx)
	if err != nil {
		return err
	}
	type at struct{ netns, port string }
	seen := map[at]float64{}
	page.Each("velo_agent_connections_total", func(labels map[string]string, v float64) {
		seen[at{labels["netns"], labels["port"]}] = v
	})
	listed, wrong := 0, 0.0
	for _, s := range n.servers {
		ns, err := netNS(s.PID)
		if err != nil {
			return err
		}
		for _, port := range n.portNumbers() {
			here, err := preflight.Host{}.Established(s.PID, uint16(port))
			if err != nil {
				return err
			}
			listed += here
			wrong += math.Abs(float64(here) - seen[at{ns, strconv.Itoa(port)}])
		}
	}
	if want := n.namespaces * n.ports * n.plan.conns; listed != want {
		return fmt.Errorf("the kernel lists %d connections, want %d", listed, want)
	}
	note := fmt.Sprintf("on %.0f watched ports, against sock_diag's list; %s", page.Sum("velo_agent_watched_ports"), lost(page))
	out.Add(fmt.Sprintf("missed of %d connections", listed), wrong, "connections", 0, results.Lower, listed, note)
	unseen := math.Abs(float64(asked) - page.Sum("velo_agent_exchanges_total"))
	out.Add("exchanges not seen, one on each", unseen, "exchanges", 0, results.Lower, asked, "")
	return nil
}

// netNS returns the inode of a process's network namespace, as the label has it.
func netNS(pid int) (string, error) {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return "", fmt.Errorf("looking for the network namespace of process %d: %w", pid, err)
	}
	return strings.Trim(link, "net:[]"), nil
}

// lost names what the daemon lost.
func lost(page live.Page) string {
	var list []string
	page.Each("velo_agent_lost_total", func(labels map[string]string, v float64) {
		if v > 0 {
			list = append(list, fmt.Sprintf("%s/%s %.0f", labels["place"], labels["reason"], v))
		}
	})
	if len(list) == 0 {
		return "nothing lost"
	}
	return "lost: " + strings.Join(list, ", ")
}
