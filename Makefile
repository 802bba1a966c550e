# Everything a person or CI types. `make help` lists it.
PYTHON ?= python3

VENV := .venv/bin
# Arguments for the scripts behind demo, conformance, bench: make bench ARGS="--ranks 4"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-large soak conformance torch-matrix fresh-test bench peers docs format lint clean

help: ## this list
	@echo "TACO: a communication backend for torch.distributed. The targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## system packages, .venv, torch, build, install; what is done already is passed over
	@$(PYTHON) scripts/setup

demo: setup ## 4 processes as 2 "nodes" train on handwritten digits through DDP (90 s)
	@$(VENV)/python examples/demo.py $(ARGS)

test: setup ## all tests: C++ (release, asan), Python, torch's own suite on 2 and 4 ranks
	@$(VENV)/python scripts/test $(ARGS)

test-large: setup ## the tests that need many GB of memory or many minutes
	@$(VENV)/python -m pytest tests --large -m large $(ARGS)

soak: setup ## every fault at every point, then 20 minutes of random ones; MINUTES=2 for the short form alone
	@$(if $(MINUTES),,$(VENV)/python scripts/test faults &&) \
	  $(VENV)/python tests/soak/soak.py --minutes $(or $(MINUTES),20) $(ARGS)

conformance: setup ## torch's own distributed suite, gloo and taco side by side, 2, 3, 4 and 8 ranks
	@$(VENV)/python tests/torch/conformance.py $(ARGS)

torch-matrix: setup ## build and smoke-test for the oldest and the newest supported torch
	@$(VENV)/python scripts/torch-matrix $(ARGS)

fresh-test: ## `make test` in a minimal Debian 12 (root; TARGET=demo for another target)
	@scripts/fresh-test $(or $(TARGET),test)

bench: setup ## taco and gloo, all_reduce of every size, in one run
	@$(VENV)/taco bench all_reduce --peers gloo $(ARGS)

peers: ## what TACO is measured against, into build/peers; one line says what of each could be had
	@$(PYTHON) perf/peers/setup $(ARGS)

docs: setup ## rewrite docs/settings.md and docs/operations.md from the code
	@$(VENV)/taco settings > build/settings.md && mv build/settings.md docs/settings.md
	@$(VENV)/python tests/torch/operations_table.py

format: ## rewrite the C++ in the project's style
	@git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format -i

lint: ## clang-tidy over the engine (reads build/dev)
	@cmake --preset dev >/dev/null && git ls-files 'csrc/*.cc' | xargs -P 2 -n 4 clang-tidy --quiet -p build/dev

clean: ## remove what was built; .venv stays
	rm -rf build dist
