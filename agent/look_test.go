// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"testing"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/preflight"
)

func TestMeant(t *testing.T) {
	var h preflight.Host
	line, err := h.Line(os.Getpid())
	if len(line) == 0 || line[0].PID != os.Getpid() {
		t.Fatalf("%v, %v", line, err)
	}
	own := line[0]
	const nobody = 1 << 22 // above what pids there are
	for _, c := range []struct {
		name string
		w    Watch
		l    bpf.Listening
		want bool
	}{
		{"a watched socket ended", Watch{Ports: []uint16{1}}, bpf.Listening{Port: 9}, true},
		{"a port that is named", Watch{Ports: []uint16{9}}, bpf.Listening{Port: 9, PID: nobody}, true},
		{"another port", Watch{Ports: []uint16{1}}, bpf.Listening{Port: 9, PID: own.PID}, false},
		{"a process that is named", Watch{PIDs: []int{own.PID}}, bpf.Listening{Port: 9, PID: own.PID}, true},
		{"no engine", Watch{}, bpf.Listening{Port: 9, PID: own.PID}, false},
		{"no engine, beside a port", Watch{Ports: []uint16{1}, Engines: true}, bpf.Listening{Port: 9, PID: own.PID}, false},
		{"its cgroup", Watch{Cgroups: []string{own.Cgroup}}, bpf.Listening{Port: 9, PID: own.PID}, own.Cgroup != ""},
		{"another cgroup", Watch{Cgroups: []string{"/another"}}, bpf.Listening{Port: 9, PID: own.PID}, false},
		{"a process that is gone", Watch{}, bpf.Listening{Port: 9, PID: nobody}, false},
	} {
		if got := meant(h, c.w, c.l); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
