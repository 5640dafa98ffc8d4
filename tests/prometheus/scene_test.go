// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

// scene is all that runs: the servers and their clients, a daemon that watches them,
// one that is itself disturbed, and what scrapes both.
type scene struct {
	ports   map[string]uint16 // of the disturbed servers, by what is wrong
	daemon  *daemon
	victim  *daemon // the disturbed one
	planes  *planes // nodes of the response plane
	classic *scraper
	native  *scraper // scrapes protobuf; nil: this Prometheus has no native histograms
	quiet   func()   // ends the traffic

	// Families and alerts whose cause cannot be made on this machine, and why.
	lacking map[string]string
}

const (
	ttftObjective = "200ms"
	gapObjective  = "100ms"
	pod           = "0c1d2e3f-0000-4000-8000-00000000000a"
	model         = "tiny.gguf"
)

var container = strings.Repeat("0123456789abcdef", 4)

func newScene(t *testing.T) *scene {
	s := &scene{ports: map[string]uint16{}, lacking: map[string]string{}}
	dir := folder(t)
	binary := build(t, dir)
	if why := live.Lacking(binary); why != "" {
		t.Skip(why)
	}
	s.startServers(t)
	s.planes = newPlanes(t)
	s.daemon = prepareDaemon(t, binary, filepath.Join(dir, "daemon"), settings{
		"plane":      planeSettings(t, dir),
		"watch":      settings{"engines": false, "ports": slices.Sorted(maps.Values(s.ports))},
		"objectives": settings{"ttft": ttftObjective, "gap": gapObjective},
		"probes":     settings{"accept": "exact"},
	})
	s.victim = prepareDaemon(t, binary, filepath.Join(dir, "victim"), s.victimConf(t, dir))
	s.startScrapers(t, dir, append([]string{s.daemon.Listen, s.victim.Listen}, s.planes.targets...))
	for _, d := range []*daemon{s.daemon, s.victim} {
		d.start(t)
	}
	for _, d := range []*daemon{s.daemon, s.victim} {
		if err := d.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.planes.find(t, s.daemon.conf)
	s.lackExactAccept(t)
	s.lacking["VeloAgentPlaneInvariantBroken"] = "what it watches stays 0: " + unforced["velo_streaming_mux_reader_stall_total"]
	s.startTraffic(t)
	s.disturb(t)
	return s
}

func (s *scene) startServers(t *testing.T) {
	serve := func(m machine, prepare func(*exec.Cmd), settle func(int)) {
		maps.Copy(s.ports, startServer(t, m, prepare, settle))
	}
	serve(machine{CPU: -1, Plans: []plan{
		{Name: "accept", Backlog: 4, AcceptDelay: 150 * time.Millisecond, Records: 1},
		{Name: "reader", ReadDelay: 40 * time.Millisecond, Records: 4, Gap: 2 * time.Millisecond},
		{Name: "engine", Think: 300 * time.Millisecond, Gap: 150 * time.Millisecond, Records: 4},
		{Name: "stalled", Records: 2000, Bytes: 4096},
		{Name: "nagle", Records: 10, Nagle: true},
		{Name: "lossy", Records: 20, Bytes: 1000, Gap: 2 * time.Millisecond},
		{Name: "hang-up", Records: 50, Gap: 5 * time.Millisecond},
		{Name: "slam", Slam: true},
		{Name: "threads", Records: 2, Thread: true},
	}}, nil, nil)
	serve(machine{CPU: -1, Files: 12, Plans: []plan{{Name: "files"}}}, nil, nil)
	// An engine, so that its model is known, beside a hog on its only CPU.
	serve(machine{CPU: lastCPU, Plans: []plan{{Name: "starved", Records: 2}}}, func(cmd *exec.Cmd) {
		cmd.Args = []string{"llama-server", "--model", "/models/" + model}
	}, nil)
	serve(machine{CPU: -1, Plans: []plan{{Name: "elsewhere"}}}, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	}, nil)
	s.startHog(t)
	s.startThrottled(t, serve)
}

func (s *scene) startHog(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role+"=hog")
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		t.Fatal(err)
	}
	startOn(t, lastCPU, cmd)
}

// startThrottled starts a server in a cgroup with 3 % of a CPU, whose path is
// like a container's of a pod.
func (s *scene) startThrottled(t *testing.T, serve func(machine, func(*exec.Cmd), func(int))) {
	const root = "/sys/fs/cgroup/cpu"
	if !writable(root) {
		s.lacking[collectors.Throttled.Name] = "there is no writable cgroup of the cpu controller (v1): " + root
		serve(machine{CPU: lastCPU, Spin: 1, Plans: []plan{{Name: "throttled", Records: 2}}}, nil, nil)
		return
	}
	path := root
	for _, part := range []string{fmt.Sprintf("velo-agent-test-%d", os.Getpid()), "pod" + pod, container} {
		path = filepath.Join(path, part)
		made := path
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := until(5*time.Second, func() error { return os.Remove(made) }); err != nil {
				t.Error(err)
			}
		})
	}
	serve(machine{CPU: -1, Spin: 1, Plans: []plan{{Name: "throttled", Records: 2}}}, nil, func(pid int) {
		write(t, path+"/cgroup.procs", strconv.Itoa(pid))
	})
	write(t, path+"/cpu.cfs_period_us", "100000")
	write(t, path+"/cpu.cfs_quota_us", "3000")
}

// writable says whether a folder of the cgroup file system takes new cgroups.
func writable(dir string) bool {
	probe := filepath.Join(dir, fmt.Sprintf("velo-agent-probe-%d", os.Getpid()))
	return os.Mkdir(probe, 0o755) == nil && os.Remove(probe) == nil
}

// startScrapers starts two Prometheus: with native histograms one takes a histogram's
// native form alone, and dashboards and rules read the classic one.
func (s *scene) startScrapers(t *testing.T, dir string, targets []string) {
	rules, err := os.ReadFile("../../dashboards/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var atOnce []string
	for line := range strings.Lines(string(rules)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "for: ") {
			atOnce = append(atOnce, line)
		}
	}
	path := filepath.Join(dir, "rules.yaml")
	write(t, path, strings.Join(atOnce, ""))
	s.classic = startScraper(t, filepath.Join(dir, "classic"), []string{path}, "", targets...)
	help, _ := exec.Command("prometheus", "--help").CombinedOutput()
	if !strings.Contains(string(help), "native-histograms") {
		t.Log("this Prometheus has no native histograms: what it makes of protobuf is not seen")
		return
	}
	s.native = startScraper(t, filepath.Join(dir, "native"), nil, "native-histograms,exemplar-storage", targets[0])
}

// victimConf is the configuration of the disturbed daemon: without the scheduler's
// hooks, and with a record on a file system of a megabyte.
func (s *scene) victimConf(t *testing.T, dir string) settings {
	small := filepath.Join(dir, "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return settings{
		"watch":  settings{"engines": false, "ports": []uint16{s.ports["reader"]}},
		"probes": settings{"scheduler": false},
		"record": settings{"dir": filepath.Join(small, "record"), "every": "1s"},
	}
}

// lackExactAccept notes what needs accept's return value.
func (s *scene) lackExactAccept(t *testing.T) {
	for line := range strings.Lines(s.daemon.get(t, "/metrics").body) {
		if strings.HasPrefix(line, collectors.SignalRung.Name) && strings.Contains(line, `signal="accepted"`) && !strings.Contains(line, `rung="tp_btf/sys_exit"`) {
			s.lacking[collectors.AcceptEMFILE.Name] = "this kernel gives the accept by a better rung than sys_exit, and that one sees no failed accept: " + line
		}
	}
}

func (s *scene) startTraffic(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	x := &traffic{ctx: ctx}
	s.quiet = func() {
		cancel()
		x.wg.Wait()
	}
	t.Cleanup(s.quiet)
	x.clients(12, s.ports["accept"], chat(1, 0))
	x.clients(2, s.ports["reader"], chat(5, 0))
	x.clients(4, s.ports["engine"], chat(3, 0))
	x.clients(1, s.ports["stalled"], stall(time.Second))
	x.clients(1, s.ports["stalled"], stall(3*time.Second)) // until the server gives up
	x.clients(1, s.ports["nagle"], chat(3, 0))
	x.clients(4, s.ports["lossy"], lossy)
	x.clients(1, s.ports["hang-up"], hangUp)
	x.clients(1, s.ports["slam"], ask)
	x.clients(1, s.ports["threads"], chat(1, 0))
	x.clients(8, s.ports["files"], idle)
	x.clients(2, s.ports["starved"], chat(10, 13*time.Millisecond))
	x.clients(1, s.ports["throttled"], chat(2, 0))
	if err := x.flood(); err != nil {
		t.Fatal(err)
	}
	s.planes.stream(t, x)
}

// disturb gives the second daemon more ports than it has room for, a configuration
// that is wrong, and a full disk.
func (s *scene) disturb(t *testing.T) {
	// Each of them has a row for each role of their process.
	roles := []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	plans := make([]plan, 140)
	for i := range plans {
		plans[i] = plan{Name: strconv.Itoa(i), Records: 1}
	}
	many := slices.Collect(maps.Values(startServer(t, machine{CPU: -1, Plans: plans, Threads: roles}, nil, nil)))
	conf := settings{}
	maps.Copy(conf, s.victim.conf)
	conf["watch"] = settings{"engines": false, "ports": append(many, s.ports["reader"])}
	s.victim.reload(t, conf, "configuration reloaded")
	conf["watch"] = settings{"prots": many}
	s.victim.reload(t, conf, "the one before stays in force")

	eventually(t, 10*time.Second, func() error { return s.classic.answers(collectors.RecordSnapshots.Name + " > 2") })
	small := filepath.Dir(s.victim.conf["record"].(settings)["dir"].(string))
	f, err := os.Create(filepath.Join(small, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling a small file system: %v", err)
	}
}
