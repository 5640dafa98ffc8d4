// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/tests/rig/side"
)

// figure is one thing that is measured in a repetition.
type figure string

// The figures. Those of a process end in its role.
const (
	rate        figure = "records per second"
	cpu         figure = "CPU per record"
	cpuConsumer figure = "CPU per record, consumer"
	cpuProducer figure = "CPU per record, producer"
	setupCPU    figure = "CPU per stream of set-up"
	switches    figure = "context switches per record"
	writes      figure = "writes per record, producer"
	writesBack  figure = "writes per record, consumer"
	allocs      figure = "allocations per record, both"
	memory      figure = "memory per stream, both"
	memConsumer figure = "memory per stream, consumer"
	memProducer figure = "memory per stream, producer"
	p50         figure = "latency p50"
	p99         figure = "latency p99"
	setupP50    figure = "set-up to first record p50"
	setupP99    figure = "set-up to first record p99"
	cores       figure = "cores used by the two"
	others      figure = "cores used by others"
)

// Figures of set-up alone.
const (
	cycleRate figure = "life cycles per second"
	cycleCPU  figure = "CPU per life cycle"
	cycleP50  figure = "life cycle p50"
	cycleP99  figure = "life cycle p99"
	cycleP999 figure = "life cycle p99.9"
	anchorEa  figure = "memory of an anchor"
	anchorAll figure = "memory of all anchors"
	anchorTop figure = "memory while they were made"
	tasks     figure = "goroutines or tasks added"
)

// order of the figures in the JSON, and their units.
var order = []struct {
	figure
	unit string
}{
	{rate, "1/s"},
	{cpu, "µs"},
	{cpuConsumer, "µs"},
	{cpuProducer, "µs"},
	{setupCPU, "µs"},
	{switches, ""},
	{writes, ""},
	{writesBack, ""},
	{allocs, ""},
	{memory, "KiB"},
	{memConsumer, "KiB"},
	{memProducer, "KiB"},
	{p50, "ms"},
	{p99, "ms"},
	{setupP50, "ms"},
	{setupP99, "ms"},
	{cores, "%"},
	{others, "%"},
}

func (f figure) unit() string {
	for _, o := range order {
		if o.figure == f {
			return o.unit
		}
	}
	return ""
}

// figures of one repetition. What could not be measured is absent.
type figures map[figure]float64

// taken is what a repetition took.
type taken struct {
	consumer, producer struct{ idle, before, after side.Answer }
	setup              side.Answer
	begun, ended       int64         // ns, from the first hand-in to the last end
	nodeCPU            time.Duration // of the whole node
	watched            int64         // ns, in which nodeCPU was used
}

func (t *taken) figures(a arm, c testCase) figures {
	// The first record of each stream belongs to the set-up.
	records := float64(c.streams) * float64(c.records-1)
	seconds := float64(t.ended-t.begun) / 1e9
	f := figures{rate: records / seconds}
	cpus := func(from, to side.Answer) float64 { return float64(to.Usage.Begin.CPU-from.Usage.End.CPU) / 1e3 }
	f[cpuConsumer] = cpus(t.consumer.before, t.consumer.after) / records
	f[cpuProducer] = cpus(t.producer.before, t.producer.after) / records
	f[cpu] = f[cpuConsumer] + f[cpuProducer]
	f[cores] = f[cpu] * records / 1e6 / seconds / float64(runtime.NumCPU()) * 100
	f[others] = max(0, t.nodeCPU.Seconds()-f[cpu]*records/1e6) / (float64(t.watched) / 1e9) / float64(runtime.NumCPU()) * 100
	f[switches] = float64(t.consumer.after.Usage.Switches-t.consumer.before.Usage.Switches+
		t.producer.after.Usage.Switches-t.producer.before.Usage.Switches) / records
	if a.carrier != "quic" { // it calls sendmsg, which is not counted
		perRecord(f, writes, t.producer.before.Usage.Writes, t.producer.after.Usage.Writes, records)
		perRecord(f, writesBack, t.consumer.before.Usage.Writes, t.consumer.after.Usage.Writes, records)
	}
	if a.carrier == side.Floor {
		return f
	}
	perRecord(f, allocs, t.consumer.before.Usage.End.Mallocs, t.consumer.after.Usage.Begin.Mallocs, records)
	perRecord(f, allocs, t.producer.before.Usage.End.Mallocs, t.producer.after.Usage.Begin.Mallocs, records)
	streams := float64(c.streams)
	memOf := func(from, to side.Answer) float64 {
		return float64(to.Usage.Peak-from.Usage.RSS) / 1024 / streams
	}
	f[memConsumer], f[memProducer] = memOf(t.consumer.idle, t.consumer.after), memOf(t.producer.idle, t.producer.after)
	f[memory] = f[memConsumer] + f[memProducer]
	f[setupCPU] = (cpus(t.consumer.idle, t.consumer.before) + cpus(t.producer.idle, t.producer.before)) / streams
	f[setupP50], f[setupP99] = float64(t.setup.Setup.P50)/1e6, float64(t.setup.Setup.P99)/1e6
	if l := t.consumer.after.Latency; l != nil {
		f[p50], f[p99] = float64(l.P50)/1e6, float64(l.P99)/1e6
	}
	return f
}

// perRecord adds to a figure what a count rose by, if it was counted. One that did not
// move was not: nothing here goes without a write or an allocation.
func perRecord[N int64 | uint64](f figures, to figure, before, after *N, records float64) {
	if before != nil && after != nil && *after != *before {
		f[to] += float64(*after-*before) / records
	}
}

// spread is the median of some repetitions with the least and the greatest.
type spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

func (s spread) String() string { return fmt.Sprintf("%.3g to %.3g", s.Least, s.Most) }

func spreadOf(xs []float64) spread {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	return spread{(s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]}
}

// readBusy is how long all CPUs have been busy since boot, to 10 ms.
func readBusy() (busy time.Duration) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, word := range strings.Fields(line) {
		n, err := strconv.Atoi(word)
		if err != nil || i == 4 || i == 5 || i > 8 { // "cpu", idle, iowait, guests
			continue
		}
		busy += time.Duration(n) * 10 * time.Millisecond
	}
	return busy
}
