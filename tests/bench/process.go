// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process is what every child can say of itself.
type Process struct{}

// Usage is what a process has used so far.
type Usage struct {
	CPU      time.Duration // user and system
	Switches uint64        // voluntary context switches of all its threads
}

// Usage answers with what the child has used.
func (*Process) Usage(_ Nothing, u *Usage) error {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return fmt.Errorf("reading the CPU time: %w", err)
	}
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	u.Switches = uint64(r.Nvcsw)
	return nil
}

// Usage returns what the child has used.
func (c *Child) Usage() (u Usage, err error) {
	err = c.Call("Process.Usage", Nothing{}, &u)
	return u, err
}

// busyTicks returns how many ticks of 10 ms all CPUs have been busy since boot.
func busyTicks() (float64, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("reading the node's CPU time: %w", err)
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("reading the node's CPU time: %w", err)
	}
	// user nice system idle iowait irq softirq steal
	var busy float64
	for i, word := range strings.Fields(line)[1:] {
		if i == 3 || i == 4 || i > 6 {
			continue
		}
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the node's CPU time: %w", err)
		}
		busy += n
	}
	return busy, nil
}

// CPUTime is CPU time in cores.
type CPUTime struct {
	Children float64 // of the children asked for, exact
	Node     float64 // of the whole node, to 10 ms
}

// Cores returns how many cores were in use for d.
func Cores(children []*Child, d time.Duration) (c CPUTime, err error) {
	before, err := cpuTimes(children)
	if err != nil {
		return c, err
	}
	begun := time.Now()
	time.Sleep(d)
	after, err := cpuTimes(children)
	took := time.Since(begun).Seconds()
	return CPUTime{(after.Children - before.Children) / took, (after.Node - before.Node) / took}, err
}

// cpuTimes returns CPU seconds.
func cpuTimes(children []*Child) (c CPUTime, err error) {
	for _, child := range children {
		u, err := child.Usage()
		if err != nil {
			return c, err
		}
		c.Children += u.CPU.Seconds()
	}
	ticks, err := busyTicks()
	c.Node = ticks / 100
	return c, err
}

// Pin keeps the calling thread on one CPU.
func Pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning a thread to CPU %d: %w", cpu, err)
	}
	return nil
}

// PinProcess keeps all threads that a process has now on one CPU.
func PinProcess(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			return fmt.Errorf("pinning thread %d to CPU %d: %w", tid, cpu, err)
		}
	}
	return nil
}
