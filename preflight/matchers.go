// SPDX-License-Identifier: Apache-2.0

package preflight

// Names of the engines that are recognised.
const (
	EngineVLLM     = "vLLM"
	EngineSGLang   = "SGLang"
	EngineTGI      = "TGI"
	EngineLlamaCpp = "llama.cpp"
	EngineOllama   = "Ollama"
	EngineTriton   = "Triton"
	EngineTRTLLM   = "TensorRT-LLM"
	EngineDynamo   = "Dynamo"
)

// matcher recognises one kind of process of an engine. Exactly one of title,
// program, module, script and mapped is set.
type matcher struct {
	engine, role string

	title   string // how the comm or a rewritten command line begins
	program string // base name of the program or of the script that an interpreter runs; a final * takes any ending
	module  string // what `python -m` runs; a final * takes any ending
	script  string // how the path of the script that Python runs ends
	mapped  string // Python only: part of the path of a file mapped into it

	sub  []string // the first argument that is no option must be one of these
	part bool     // never starts by itself: without its parent it is an orphan
}

// matchers is the table; the first that fits wins.
var matchers = []matcher{
	// vLLM and SGLang rewrite the titles of their processes; comm is cut to 15 bytes.
	{engine: EngineVLLM, role: "engine", title: "VLLM::EngineCor", part: true},
	{engine: EngineVLLM, role: "worker", title: "VLLM::Worker", part: true},
	{engine: EngineVLLM, role: "api", title: "VLLM::APIServer"},
	{engine: EngineVLLM, role: "coordinator", title: "VLLM::DPCoord", part: true},
	{engine: EngineVLLM, role: "part", title: "VLLM::", part: true},
	{engine: EngineVLLM, role: "api", program: "vllm", sub: []string{"serve"}},
	{engine: EngineVLLM, role: "api", module: "vllm.entrypoints.cli.main", sub: []string{"serve"}},
	{engine: EngineVLLM, role: "api", module: "vllm.entrypoints.openai.api_server"},
	{engine: EngineVLLM, role: "api", module: "vllm.entrypoints.api_server"},
	{engine: EngineVLLM, role: "api", module: "vllm.entrypoints.grpc_server"},
	{engine: EngineVLLM, role: "api", script: "vllm/entrypoints/openai/api_server.py"},
	{engine: EngineVLLM, role: "router", program: "vllm-router"},

	{engine: EngineSGLang, role: "scheduler", title: "sglang::sched", part: true},
	{engine: EngineSGLang, role: "detokenizer", title: "sglang::detok", part: true},
	{engine: EngineSGLang, role: "router", title: "sglang::router"},
	{engine: EngineSGLang, role: "part", title: "sglang::", part: true},
	{engine: EngineSGLang, role: "api", module: "sglang.launch_server"},
	{engine: EngineSGLang, role: "api", script: "sglang/launch_server.py"},
	{engine: EngineSGLang, role: "api", program: "sglang", sub: []string{"serve"}},
	{engine: EngineSGLang, role: "router", module: "sglang_router.*"},
	{engine: EngineSGLang, role: "router", program: "sglang-router"},

	{engine: EngineTGI, role: "launcher", program: "text-generation-launcher"},
	{engine: EngineTGI, role: "router", program: "text-generation-router*"},
	{engine: EngineTGI, role: "worker", program: "text-generation-server", sub: []string{"serve"}, part: true},

	{engine: EngineOllama, role: "api", program: "ollama", sub: []string{"serve"}},
	{engine: EngineOllama, role: "worker", program: "ollama", sub: []string{"runner"}, part: true},
	{engine: EngineOllama, role: "worker", program: "ollama_llama_server", part: true},

	{engine: EngineLlamaCpp, role: "api", program: "llama-server"},
	{engine: EngineLlamaCpp, role: "api", module: "llama_cpp.server*"},
	{engine: EngineLlamaCpp, role: "api", mapped: "-packages/xllamacpp"},
	{engine: EngineLlamaCpp, role: "api", mapped: "/libllama.so"},

	{engine: EngineTriton, role: "api", program: "tritonserver"},
	{engine: EngineTriton, role: "worker", program: "triton_python_backend_stub", part: true},

	{engine: EngineTRTLLM, role: "api", program: "trtllm-serve"},

	{engine: EngineDynamo, role: "frontend", module: "dynamo.frontend*"},
	{engine: EngineDynamo, role: "router", module: "dynamo.router*"},
	{engine: EngineDynamo, role: "planner", module: "dynamo.planner*"},
	{engine: EngineDynamo, role: "worker", module: "dynamo.*"},
	{engine: EngineDynamo, role: "worker", program: "dynamo-run"},
}
