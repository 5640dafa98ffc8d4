// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

// memory keeps the most that the two processes held.
type memory struct {
	daemon  *live.Daemon
	most    live.Memory
	samples int
}

func (m *memory) sample() error {
	now, err := m.daemon.Memory()
	if err != nil {
		return err
	}
	m.samples++
	if now.PSS() > m.most.PSS() {
		m.most = now
	}
	return nil
}

// judge adds the kernel's maps.
func (m *memory) judge(ctx context.Context, out *results.Run, p plan) error {
	if err := m.sample(); err != nil {
		return err
	}
	page, err := m.daemon.Page(ctx)
	if err != nil {
		return err
	}
	maps := page.Sum("velo_agent_memory_bytes", "part", "kernel_maps")
	one := func(r live.Resident) string {
		return fmt.Sprintf("%.1f (anonymous %.1f; RSS %.1f)", float64(r.PSS)/mib, float64(r.Anon)/mib, float64(r.RSS)/mib)
	}
	note := fmt.Sprintf("at most; PSS: daemon %s, helper %s; kernel maps %.1f; the daemon's heap in use now %.1f",
		one(m.most.Daemon), one(m.most.Helper), maps/mib, page.Sum("go_memstats_heap_inuse_bytes")/mib)
	p.judge(out, fmt.Sprintf("memory with kernel maps, %d connections", p.namespaces*p.ports*p.conns),
		(float64(m.most.PSS())+maps)/mib, "MiB", memoryGoal, m.samples, note)
	return nil
}
