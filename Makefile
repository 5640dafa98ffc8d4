# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO_FILES := $(shell git ls-files -co --exclude-standard -- '*.go' '*.o' go.mod go.sum 2>/dev/null)
# Where goroutines share state, or the logic is pure: the race detector is worth
# its time here.
PURE := ./agent/ ./attribution/ ./bpf/ladder/ ./collectors/ ./config/ ./diagnosis/ ./plane/... ./preflight/ ./privileged/ ./record/ ./top/ ./tests/plane/ ./tests/results/ ./scripts/...
FOR ?= 15s
FUZZTIME ?= 20s
LDFLAGS := -s -w -X github.com/velo-agent/velo-agent/agent.Version=$(VERSION)

.PHONY: help build demo test unit race fuzz lint format gate generate truth bench-probes scale daemon-scale soak kernels real bench-plane bench-anchor bench-window interop deps clean

help: ## list the targets
	@echo "velo-agent: make TARGET"
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | while IFS=$$'\t' read -r t h; do printf '  %-14s %s\n' "$$t" "$$h"; done

build: build/velo-agent ## build the static binary build/velo-agent (Go alone is needed)

build/velo-agent: $(GO_FILES)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/velo-agent

demo: build ## start a real engine and a server of our own, and diagnose both (FOR=15s)
	go run ./tests/demo --agent build/velo-agent --for $(FOR)

test: ## all that must pass before a commit: lint, gate, unit tests, race, short measurements
	@rm -rf build/test; mkdir -p build/test
	scripts/install-test-deps
	@# One after the other, also under -j: they measure time on the same CPUs.
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory gate
	scripts/build-interop
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory race
	scripts/short-measurements
	@shopt -s nullglob; found=(build/test/measured/*.json); \
	[[ $${#found[@]} -eq 0 ]] || go run ./scripts/testsummary -measured "$${found[@]}"
	@go run ./scripts/testsummary build/test/*.json

unit: ## the Go tests of every package; what needs root or a tool says so where it is missing
	scripts/gotest unit -p 1 -short -timeout 15m ./...
	scripts/gotest rig -C tests/rig -p 1 -short -timeout 10m ./...

race: ## the packages of pure Go again, under the race detector
	@if command -v gcc >/dev/null; then scripts/gotest race -race -short -timeout 10m $(PURE); \
	else scripts/note-skip race "no gcc, which the race detector needs"; fi

fuzz: ## feed noise to whatever reads what others wrote (FUZZTIME=20s for each target)
	go test -run '^$$' -fuzz FuzzReplay -fuzztime $(FUZZTIME) ./attribution
	go test -run '^$$' -fuzz FuzzDecodeRecord -fuzztime $(FUZZTIME) ./bpf
	go test -run '^$$' -fuzz FuzzServe -fuzztime $(FUZZTIME) ./privileged
	go test -run '^$$' -fuzz FuzzSegment -fuzztime $(FUZZTIME) ./record
	go test -run '^$$' -fuzz FuzzLoad -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./config
	@# Minimising a long input can take all the time, so it is cut short.
	for p in ./plane/wire ./plane/mux; do for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$p || exit 1; done; done

lint: ## gofumpt, go vet, staticcheck, clang-format, shellcheck, SPDX lines
	scripts/lint

format: ## format the Go and C files
	scripts/lint --fix

gate: ## regenerate the BPF objects in a copy and compare them with the committed ones
	@if command -v clang-14 >/dev/null; then scripts/check-generated; \
	else scripts/note-skip gate "no clang-14, so the BPF objects cannot be made again"; fi

generate: ## make the BPF objects (clang 14), dashboards and rules anew from their sources
	scripts/generate
	go run ./dashboards/generate

truth: build ## injected delays land in their stages, and TTFT and gaps agree with the client
	go run ./tests/truth $(ARGS)

bench-probes: build ## what the probes cost, against the same hooks with empty programs
	go run ./tests/bench/probes $(ARGS)

daemon-scale: build ## the daemon: scrapes, memory and idle CPU with 10,000 connections, 100 ports, 20 namespaces
	go run ./tests/bench/daemon $(ARGS)

soak: build ## the daemon for half an hour with engines that restart: first and last five minutes
	go run ./tests/soak $(ARGS)

scale: build ## ten thousand connections: none missed, how much memory, how long to mark them
	go run ./tests/bench/scale $(ARGS)

kernels: ## the same programs in older kernels under qemu, and here
	scripts/install-test-deps --kernels
	go run ./tests/kernels/cmd $(ARGS)

real: build ## diagnose on real engines (llama.cpp, Dynamo), against the client's clock
	go run ./tests/real $(ARGS)

bench-plane: ## the plane beside velo and other carriers, some ten minutes (all cases: ARGS='-reps 3')
	go run -C tests/rig . $(or $(ARGS),-short) -out ../../build/results

bench-anchor: ## setting streams up: life cycles, anchors at rest, idle streams, beside velo
	go run -C tests/rig . -anchor $(ARGS) -out ../../build/results

bench-window: ## what the plane's credit window and flush policy do
	go run ./tests/bench/window $(ARGS)

interop: ## the plane against velo's own Rust nodes, both wire versions, both roles
	scripts/build-interop
	go test -count 1 -timeout 30m ./tests/interop $(ARGS)

deps: ## install what the tests need
	scripts/install-test-deps

clean: ## remove what was built and measured (kernels, engines and Python environments too)
	rm -rf build
	go clean -testcache
