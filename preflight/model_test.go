// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"strings"
	"testing"
)

func TestModelOf(t *testing.T) {
	for _, c := range []struct{ command, want string }{
		{"vllm serve meta-llama/Llama-3.1-8B --port 8000", "meta-llama/Llama-3.1-8B"},
		{"vllm serve /models/llama --served-model-name chat", "chat"},
		{"python3 -m vllm.entrypoints.openai.api_server --model=/models/qwen2", "qwen2"},
		{"python -m sglang.launch_server --model-path Qwen/Qwen3-8B", "Qwen/Qwen3-8B"},
		{"llama-server -m /models/tiny.gguf", "tiny.gguf"},
		{"llama-server -m /models/tiny.gguf -a tiny", "tiny"},
		{"text-generation-launcher --model-id bigscience/bloom", "bigscience/bloom"},
		{"python -m dynamo.frontend --http-port 8000", ""},
		{"vllm serve --port 8000", ""},
		{"ollama serve", ""},
		{"llama-server -m", ""},
		{"", ""},
	} {
		if got := ModelOf(strings.Fields(c.command)); got != c.want {
			t.Errorf("%q serves %q, want %q", c.command, got, c.want)
		}
	}
	if got := ModelOf([]string{"x", "--model", strings.Repeat("é", 200)}); len(got) > longestModel || !strings.HasPrefix(got, "é") {
		t.Errorf("a long name became %q", got)
	}
}

func TestPodUID(t *testing.T) {
	const uid = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
	for _, c := range []struct{ path, want string }{
		{"/kubepods/burstable/pod" + uid + "/" + strings.Repeat("ab", 32), uid},
		{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-x.scope", uid},
		{"/system.slice/docker-" + strings.Repeat("ab", 32) + ".scope", ""},
		{"/podman/pod", ""},
		{"/", ""},
	} {
		if got := podUID([]cgroup{{path: c.path}}); got != c.want {
			t.Errorf("%s is of pod %q, want %q", c.path, got, c.want)
		}
	}
}
