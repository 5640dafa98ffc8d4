// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMatchers(t *testing.T) {
	for _, c := range []struct {
		args, comm, exe string // args separated by spaces
		want            string // "engine/role", or ""
	}{
		{args: "vllm serve m --port 8000", want: "vLLM/api"},
		{args: "/usr/bin/python3 /usr/local/bin/vllm serve m", want: "vLLM/api"},
		{args: "/usr/bin/python3.12 -u -m vllm.entrypoints.openai.api_server --model m", want: "vLLM/api"},
		{args: "python -um vllm.entrypoints.openai.api_server", want: "vLLM/api"},
		{args: "python -W ignore -X dev -mvllm.entrypoints.openai.api_server", want: "vLLM/api"},
		{args: "python /opt/vllm/entrypoints/openai/api_server.py", want: "vLLM/api"},
		{args: "VLLM::EngineCore", comm: "VLLM::EngineCor", exe: "/usr/bin/python3.11", want: "vLLM/engine"},
		{comm: "VLLM::Worker", want: "vLLM/worker"},
		{args: "VLLM::Worker_TP0", want: "vLLM/worker"},
		{args: "VLLM::Novelty", want: "vLLM/part"},
		{args: "vllm-router --port 1", want: "vLLM/router"},
		{args: "vllm bench serve --model m"},
		{args: "python -c import vllm.entrypoints.openai.api_server"},
		{args: "grep vllm serve"},
		{args: "bash -c vllm serve"},
		{args: "python3 -m sglang.launch_server --model-path m", want: "SGLang/api"},
		{args: "sglang::scheduler_TP0", comm: "sglang::schedul", want: "SGLang/scheduler"},
		{args: "sglang::detokenizer", want: "SGLang/detokenizer"},
		{args: "python -m sglang_router.launch_router", want: "SGLang/router"},
		{args: "python -m sglang.bench_serving"},
		{args: "text-generation-launcher --model-id m", want: "TGI/launcher"},
		{args: "text-generation-router --port 80", want: "TGI/router"},
		{args: "/opt/venv/bin/python3 /opt/venv/bin/text-generation-server serve m", want: "TGI/worker"},
		{args: "/opt/venv/bin/python3 /opt/venv/bin/text-generation-server download-weights m"},
		{args: "/app/llama-server -m x.gguf", want: "llama.cpp/api"},
		{args: "x", exe: "/app/llama-server (deleted)", want: "llama.cpp/api"},
		{args: "python -m llama_cpp.server", want: "llama.cpp/api"},
		{args: "/usr/bin/ollama serve", want: "Ollama/api"},
		{args: "/usr/bin/ollama runner --model x --port 4", want: "Ollama/worker"},
		{args: "ollama run llama3"},
		{args: "tritonserver --model-repository=/m", want: "Triton/api"},
		{args: "python -m dynamo.frontend --http-port 8000", want: "Dynamo/frontend"},
		{args: "python3 -m dynamo.mocker --model-path m", want: "Dynamo/worker"},
		{args: "python3 -m dynamo.vllm --model m", want: "Dynamo/worker"},
		{args: "python"},
		{args: "python -m"},
		{args: "python -W"},
		{args: "python -"},
		{args: ""},
		{args: "python -m dynamo"},
	} {
		p := Process{PID: 9, Comm: c.comm, Exe: c.exe}
		if c.args != "" {
			p.Args = strings.Split(c.args, " ")
		}
		m, what, err := newTree(t).host().match(p)
		got := ""
		if m != nil {
			got = m.engine + "/" + m.role
		}
		if err != nil && !gone(err) || got != c.want || (what == "") != (c.want == "") {
			t.Errorf("%q %q: got %q by %q, %v; want %q", c.args, c.comm, got, what, err, c.want)
		}
	}
	if m, _, _ := (Host{}).match(Process{State: 'Z', Comm: "llama-server"}); m != nil {
		t.Error("a zombie serves nothing")
	}
}

func TestMatcherTable(t *testing.T) {
	for i, m := range matchers {
		n := 0
		for _, s := range []string{m.title, m.program, m.module, m.script, m.mapped} {
			if s != "" {
				n++
			}
		}
		if n != 1 || m.engine == "" || m.role == "" {
			t.Errorf("row %d wants an engine, a role and one way to recognise it: %+v", i, m)
		}
	}
}

func TestEngineFamilies(t *testing.T) {
	tr := newTree(t)
	tr.write("60/maps", "7f00 r-xp 0 0:0 1   /venv/lib/python3.11/site-packages/xllamacpp/xllamacpp.abi3.so\n")
	tr.write("61/maps", "7f00 r-xp 0 0:0 1   /srv/xllamacpp/lib/libpython3.11.so\n7f01 rw-p 0 0:0 0 [heap]\n")
	py := func(args ...string) []string { return append([]string{"python"}, args...) }
	procs := []Process{
		{PID: 1, Comm: "init"},
		{PID: 10, PPID: 1, Args: []string{"vllm", "serve", "a"}},
		{PID: 11, PPID: 10, Args: []string{"VLLM::EngineCore"}},
		{PID: 12, PPID: 11, Args: []string{"VLLM::Worker_TP0"}},
		{PID: 13, PPID: 10, Args: py("-c", "from multiprocessing.resource_tracker import main")},
		{PID: 20, PPID: 1, Args: []string{"vllm", "serve", "b"}},
		{PID: 30, PPID: 1, Args: []string{"VLLM::EngineCore"}},
		{PID: 40, PPID: 1, Args: py("-m", "dynamo.vllm")},
		{PID: 41, PPID: 40, Args: []string{"VLLM::EngineCore"}},
		{PID: 50, PPID: 1, Args: py("-m", "dynamo.frontend")},
		{PID: 60, PPID: 1, Args: py("serve.py")},
		{PID: 61, PPID: 1, Args: py("other.py")},
		{PID: 70, PPID: 71, Comm: "loop"},
		{PID: 71, PPID: 70, Comm: "loop"},
	}
	engines, err := tr.host().Engines(procs)
	if err != nil {
		t.Fatal(err)
	}
	type short struct {
		name   string
		main   int
		pids   string
		orphan bool
	}
	var got []short
	for _, e := range engines {
		var roles []string
		for _, m := range e.Members {
			roles = append(roles, m.Role)
		}
		if len(e.PIDs) != len(e.Members) {
			t.Errorf("%+v", e)
		}
		got = append(got, short{e.Name, e.Main, strings.Join(roles, " "), e.Orphan})
	}
	want := []short{
		{"vLLM", 10, "api engine worker child", false},
		{"vLLM", 20, "api", false},
		{"vLLM", 30, "engine", true},
		{"Dynamo", 40, "worker engine", false},
		{"Dynamo", 50, "frontend", false},
		{"llama.cpp", 60, "api", false},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestRealEngine(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep command")
	}
	cmd := exec.Command(sleep, "60")
	cmd.Args[0] = "/opt/bin/llama-server"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	h := Host{}
	for range 100 { // Start returns when exec has happened; the list needs no wait, a busy machine may
		procs, err := h.Processes()
		var part *Incomplete
		if err != nil && !errors.As(err, &part) {
			t.Fatal(err)
		}
		engines, err := h.Engines(procs)
		if err != nil && !errors.As(err, &part) {
			t.Fatal(err)
		}
		if slices.ContainsFunc(engines, func(e Engine) bool { return e.Name == EngineLlamaCpp && e.Main == cmd.Process.Pid }) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the process that calls itself llama-server was not recognised")
}
