# Every target sets up what it needs; nothing outside the checkout is written but pip's own cache.
# pip obeys its usual settings: to get another build of torch, point PIP_INDEX_URL or
# PIP_EXTRA_INDEX_URL at it before `make install`.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# matplotlib would otherwise keep its font cache in the home folder.
ENV := MPLCONFIGDIR="$(CURDIR)/.cache/matplotlib"
# One thread a worker: same bits on every machine, and two workers do not fight over the cores.
TEST := $(ENV) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2
# Tests that compare computed numbers, and what holds them to AVX2 on a processor that has more;
# ebbflow itself then holds MKL to it.
NUMERICAL := $(addprefix tests/,algorithms analysis core engines models sessions simulation starts)
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-avx2 lint docs paper bench chaos peers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

install: $(STAMP) ## set up .venv with pinned versions (PYTHON=python3.12 picks the interpreter)

$(STAMP): pyproject.toml publications/pyproject.toml constraints.txt hatch_build.py $(wildcard src/ebbflow/engines/native/*.c)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "ebbflow needs Python 3.11 or newer, not " + sys.version.split()[0] + \
	    ": make install PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]" -e publications
	@touch $@

demo: $(STAMP) ## compare four starts on the packaged digits; results in runs/demo
	rm -rf runs/demo
	$(ENV) $(BIN)/ebbflow compare --preset demo --out runs/demo
	$(ENV) $(BIN)/ebbflow report runs/demo

test: $(STAMP) ## run the tests and the doctests, without the slow ones
	$(TEST)

test-all: $(STAMP) ## run all of them, the slow ones too, and the numerical ones held to AVX2
	$(TEST) -m ""
	@$(MAKE) --no-print-directory test-avx2

test-avx2: $(STAMP) ## run the numerical tests held to AVX2, where the processor has more
	@used=$$($(BIN)/python -c \
	    'from ebbflow.core.processor import instructions; print(instructions())') && \
	case "$$used" in \
	    *AVX512*) echo '$(AVX2) pytest $(NUMERICAL)'; $(AVX2) $(TEST) $(NUMERICAL) ;; \
	    *) echo 'test-avx2: skipped, for this processor has no more than AVX2' ;; \
	esac

lint: $(STAMP) ## check style, format, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP) ## build the documentation into build/site; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

paper: $(STAMP) ## write docs/reproduction.md and its pictures from the kept results; runs nothing
	$(ENV) $(BIN)/python -m chang2025 page

# NAMES="W1 scaling" measures only these suites. Cells read their data from EBBFLOW_DATA, or from where
# `ebbflow data get` puts it; `before` needs a clone with its past.
bench: $(STAMP) ## time ebbflow, beside the peers of `make peers` if any; writes docs/performance.md
	$(ENV) $(BIN)/python -m benchmarks $(NAMES) --out docs/performance.md \
	    $(if $(wildcard build/peers/peers.json),--peers build/peers)

chaos: $(STAMP) ## disturb runs in every way and write docs/reliability.md; an hour and a half
	$(ENV) $(BIN)/python -m benchmarks.chaos --out docs/reliability.md \
	    $(if $(wildcard build/peers/peers.json),--peers build/peers)

peers: $(STAMP) ## set up the other simulators that `make bench` then measures as well
	$(BIN)/python benchmarks/peers/install.py build/peers

clean: ## remove caches and builds; .venv and runs stay
	rm -rf .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . \( -path ./.venv -o -path ./runs \) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
