# Everything a checkout does, in one place. `make` alone says what there is.
# Options go through ARGS, e.g. make test ARGS='tests/unit -k slots'.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UNIT := tests/unit tests/contracts

export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache
# Without its cache, each of the thousand processes of the tests compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONHASHSEED ?= 0

help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Options go through ARGS, e.g. make test ARGS='tests/unit -x'."

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Sluice needs Python 3.11 or newer; '$(PYTHON)' is not. Name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { \
	  echo "'$(PYTHON)' has no venv module; install it (Debian: python3-venv) and run make again." >&2; exit 1; }
	@echo "Setting up $(VENV) (once; again only when requirements.lock or pyproject.toml changes)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -W ignore:DEPRECATION -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --offline --python $(BIN)/python --no-deps --editable .
	@touch $@

test: $(READY) ## run all tests
	@$(BIN)/python -m pytest --workers auto $(ARGS)

check: $(READY) ## format, lint, types, import rules, generated pages, unit tests
	@$(MAKE) --no-print-directory --jobs=2 lint .units

lint: $(READY) ## format, lint, types, import rules, generated pages
	@$(BIN)/ruff format --check --quiet . || { echo "make fix formats them" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(MAKE) --no-print-directory .types

.types:
	@$(BIN)/python -m tools.typecheck
	@$(BIN)/lint-imports --cache-dir .cache/import-linter
	@$(BIN)/python tools/pages.py --check
	@$(BIN)/python tools/crds.py --check
	@$(BIN)/python tools/chart.py --check
	@$(BIN)/python tools/dashboards.py --check

.units:
	@$(BIN)/python -m pytest -q --workers 2 $(UNIT) $(ARGS)

fix: $(READY) ## format, mend what the linter can, write the generated pages
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format --quiet .
	@$(BIN)/python tools/pages.py
	@$(BIN)/python tools/crds.py
	@$(BIN)/python tools/chart.py
	@$(BIN)/python tools/dashboards.py

lock: $(READY) ## renew requirements.lock (ARGS='--upgrade' for newer versions)
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --all-extras --group dev --no-emit-index-url --no-emit-find-links \
	  $(ARGS) pyproject.toml --output-file requirements.lock

kube: $(READY) ## build a real Kubernetes control plane for tests, once, into a cache (needs Go)
	@$(BIN)/python -m libs.testing.realkube.build

node: $(READY) ## build kubelet, containerd and runc for tests on real nodes, once, into a cache (needs Go)
	@$(BIN)/python -m libs.testing.realnodes.build

image: $(READY) ## build the image of all services and agents, and its SBOM (ARCH=arm64 for another machine)
	@$(BIN)/python -m libs.testing.image.build

helm: $(READY) ## build Helm for tests of the chart, once, into a cache (needs Go)
	@$(BIN)/python -m libs.testing.helm

manifests: $(READY) ## write what the chart installs as files for kubectl (ARGS='--values FILE')
	@$(BIN)/python tools/manifests.py $(ARGS)

prometheus: $(READY) ## fetch Prometheus for tests of dashboards and alerts, once, into a cache (apt)
	@$(BIN)/python -m libs.testing.prometheus

docker: $(READY) ## fetch Docker for tests with containers, once, into a cache (apt)
	@$(BIN)/python -m libs.testing.dockerd

guest: $(READY) ## build a virtual machine with a real kernel and small modules, once, into a cache
	@$(BIN)/python -m libs.testing.guest.build

vendor: $(READY) ## fetch and compile NVIDIA's own driver for tests in the guest, once, into a cache (apt)
	@$(BIN)/python -m libs.testing.vendor.build

gpu: $(READY) ## read this machine's own GPUs through NVIDIA's library; changes nothing
	@$(BIN)/python -m pytest -v -rs tests/component/gpus/test_real.py $(ARGS)

demo: $(READY) ## one driver upgrade of a simulated fleet, by all services (ARGS='--once'; ARGS='--help')
	@$(BIN)/python -m demo $(ARGS)

bench: $(READY) ## measure, and print ratios (ARGS='slots' for one; ARGS='--list' names them)
	@$(BIN)/python -m bench $(ARGS)

soak: $(READY) ## long randomised runs (ARGS='engine --seeds 10000'; ARGS='engine --only 7' tells one)
	@$(BIN)/python -m tools.soak $(or $(ARGS),engine)

clean: ## remove the virtual environment and caches
	@rm -rf $(VENV) .cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help test check lint .types .units fix lock kube node image helm manifests prometheus docker guest vendor gpu demo bench soak clean
