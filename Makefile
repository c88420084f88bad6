# Two commands do everything on a fresh Debian 12 machine: `make demo` and `make test`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
LINTED  := build/.ansible-linted
SITE    ?= inventory/example/site.yml
export PENSTOCK_CACHE ?= $(CURDIR)/build/cache
export PYTHONUNBUFFERED := 1
# Bytecode is kept whatever the machine is set to: without it, each process compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

# each tier leaves a report for the table of `make test`
PYTEST = $(BIN)/pytest --junitxml=build/tiers/$@.xml
# those of a group run side by side, with a plus between them one after another; what is pure has the cores while all others wait
TIERS := lint,bundle,~types+unit+api-tests lab integration
# the examples that a property is tried on: `full`, `fast` or `search` (tests/conftest.py)
EXAMPLES ?= full

SAY = @printf '\n\033[1m== %s\033[0m\n'

.PHONY: help setup packages engine vendor gpu-check-kit bundle demo demo-down lint types unit api-tests api-dev test-fast check integration molecule lab slurm-lab test bench clean shim shim-test shim-sanitized

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: packages $(STAMP) vendor engine ## Install what is needed: Debian packages, .venv, front-end files, a running Docker Engine

packages:
	@tools/packages.sh

$(STAMP): pyproject.toml
	$(SAY) "Python environment: $(VENV) (packages of pyproject.toml, about 600 MB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --no-compile --progress-bar on --editable '.[build,reservoir,index,site,agent,api]' --group dev | { grep -vE '^(Requirement already|Looking in)' || true; }
	@$(BIN)/penstock --help >/dev/null
	@touch $@

vendor: packages
	@tools/vendor.sh

engine: packages
	@tools/engine.sh

bundle: setup ## Build the product's bundle in build/bundle
	$(SAY) "Bundle: build/bundle (a second build downloads nothing)"
	@$(BIN)/penstock reservoir lock --if-changed manifest.yml
	@$(BIN)/penstock reservoir build manifest.yml --output build/bundle

shim: setup ## The library for GPU shares in build/shim: release
	@$(MAKE) --no-print-directory -C appliance/gpu/shim PYTHON="$(CURDIR)/$(BIN)/python" OUT="$(CURDIR)/build/shim" release

shim-test: setup ## Tests of that library
	@$(MAKE) --no-print-directory -C appliance/gpu/shim PYTHON="$(CURDIR)/$(BIN)/python" OUT="$(CURDIR)/build/shim" test

shim-sanitized: setup ## The same, with sanitizers
	@$(MAKE) --no-print-directory -C appliance/gpu/shim PYTHON="$(CURDIR)/$(BIN)/python" OUT="$(CURDIR)/build/shim" sanitized

gpu-check-kit: setup ## An archive that judges GPU shares on a real card, in build/
	@$(BIN)/python -m tools.gpu_check_kit build

demo: setup ## The main job: bundle, closed lab cluster, fractional GPU sessions; prints address and login
	@$(BIN)/python -m tests.lab.demo --site $(SITE)

demo-down: ## Remove the demo's cluster
	@$(BIN)/penstock lab down -f $(SITE)

lint: $(LINTED) ## Style: ruff, and ansible-lint when roles or playbooks have changed
	$(SAY) "Lint: ruff"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

# Folders are named, too: they change when a file goes.
$(LINTED): $(STAMP) .ansible-lint ansible.cfg tools/lint_roles.py $(shell find inventory molecule playbooks roles -name __pycache__ -prune -o -type d -printf '%p/. ' -o -printf '%p ')
	$(SAY) "Lint: ansible-lint, as roles or playbooks have changed"
	@$(BIN)/python -m tools.lint_roles
	@mkdir -p $(@D) && touch $@

types: $(STAMP) ## Types: mypy
	$(SAY) "Types: mypy strict"
	@$(BIN)/mypy

unit: $(STAMP) ## Unit tests and the rules of the house
	$(SAY) "Unit tests"
	@$(PYTEST) tests/unit -q -n auto --dist worksteal -o tmp_path_retention_policy=failed --hypothesis-profile=$(EXAMPLES)

api-tests: $(STAMP) ## Tests of the control API, on PostgreSQL
	$(SAY) "Control API: on PostgreSQL"
	@$(PYTEST) tests/api -q -n auto

FILES ?= tests/unit

test-fast: $(STAMP) ## Tests of some files, those that failed last first, up to the first failure: FILES="tests/unit/api"
	@$(BIN)/pytest $(FILES) -q -x --failed-first

PORT ?= 56789

api-dev: setup ## The control API alone on a PostgreSQL of its own, with simulated nodes; prints address and login. PORT=…
	@$(BIN)/python -m tools.api_dev $(PORT)

check: setup ## The fast tier: lint, types and unit tests side by side, properties on fewer examples
	@EXAMPLES=fast $(BIN)/python -m tools.tiers lint,types,unit

# two workers more than cores: they wait for engines, agents and services most of the time
integration: setup ## Tests on real parts: apt, Docker Engine, PostgreSQL
	$(SAY) "Integration tests: Docker Engine, PostgreSQL, apt, debootstrap"
	@$(PYTEST) tests/integration -v -n 4 --dist loadfile --no-loadscope-reorder

lab: setup ## Tests of the closed lab
	$(SAY) "The closed lab: dry run on bare nodes, deploy, Molecule's checks, end to end"
	@$(PYTEST) tests/lab -v -s

slurm-lab: setup ## The closed lab with Slurm as its engine: deploy from the bundles alone, sessions, faults
	$(SAY) "The closed lab with Slurm: deploy, sessions, what they survive"
	@$(PYTEST) tests/slurm_lab -v -s

molecule: bundle ## Roles while they are written: the checks of the closed lab on two nodes of their own
	$(SAY) "Molecule: roles on two lab nodes, from the dry run to the check of the result"
	@PATH="$(CURDIR)/$(BIN):$$PATH" molecule test --all

test: setup ## All tests, from lint to the closed lab; ends with how long each tier and its slowest tests took
	@$(BIN)/python -m tools.tiers $(TIERS)

OPENB ?= ../shared/data/openb

bench: bundle ## Figures, one JSON line each; the last ones start the demo's lab. OPENB=FOLDER holds the traces of openb
	@ls $(OPENB)/openb_pod_list_*.csv >/dev/null || { echo "error: no traces of openb in $(OPENB). Hint: OPENB=FOLDER with openb_*.csv of Alibaba's cluster-trace-gpu-v2023" >&2; exit 2; }
	$(SAY) "Verify: rate beside plain hashing, memory"
	@$(BIN)/python -m tests.bench.verify "$$(ls -dt build/bundle/penstock-*/ | head -n 1)"
	$(SAY) "Builds: again without changes and without a network; the disk that a first one takes"
	@$(BIN)/python -m tests.bench.rebuild
	$(SAY) "Debian closures: beside what the apt of a bare node installs, on both releases"
	@$(BIN)/python -m tests.bench.apt_closure "$$(ls -dt build/bundle/penstock-*/ | head -n 1)"
	$(SAY) "Security checker: 50,000 advisories, 5,000 packages"
	@$(BIN)/python -m tests.bench.scan
	$(SAY) "Bundles: every verb at 20,000 artifacts, held against its aim"
	@$(BIN)/python -m tests.bench.artifacts
	$(SAY) "Publication: 5,000 artifacts, first and next time; prune"
	@$(BIN)/python -m tests.bench.publish
	$(SAY) "Logs of the site: a request found in gathered journals"
	@$(BIN)/python -m tests.bench.log_search
	$(SAY) "Delta: bytes that one changed wheel takes"
	@$(BIN)/python -m tests.bench.delta
	$(SAY) "Placement: allocation on the openb traces in $(OPENB), beside FGD's published figures"
	@for pods in $(OPENB)/openb_pod_list_*.csv; do \
	  $(BIN)/python tests/bench/openb.py --nodes $(OPENB)/openb_node_list_gpu_node.csv --pods $$pods || exit 1; \
	done
	$(SAY) "GPU shares: cost of the shim, 300 starts, shares kept, on the fake driver"
	@$(BIN)/python -m tests.bench.shim
	$(SAY) "GPU shares: what a session costs a program that computes; 50 small trainings on whole and shared GPUs, simulated"
	@$(BIN)/python -m tests.bench.overhead
	@$(BIN)/python -m tests.bench.shares
	$(SAY) "Scheduler: decisions, cycles, a reclaim at 2,000 and 10,000 nodes, of 50 and 500 projects"
	@$(BIN)/python tests/bench/scale.py --nodes 2000 --gpus 8 --sessions 10000
	@$(BIN)/python tests/bench/scale.py --nodes 10000 --gpus 8 --sessions 50000
	@$(BIN)/python tests/bench/scale.py --nodes 10000 --gpus 8 --sessions 50000 --projects 500
	$(SAY) "Scheduler's loop on PostgreSQL: 10,000 nodes, 50,000 sessions, 50 and 500 projects"
	@$(BIN)/python -m tests.bench.scheduler_loop
	@$(BIN)/python -m tests.bench.scheduler_loop --projects 500
	$(SAY) "Starts and ends: statements, rate, submit to RUNNING"
	@$(BIN)/python -m tests.bench.starts
	$(SAY) "Leases of Slurm: 10,000 reconciled; submit to RUNNING beside direct, on a small Slurm of this machine"
	@$(BIN)/python -m tests.bench.leases
	$(SAY) "Control API: 2,000 agents, 10,000 sessions, 50 users, on PostgreSQL"
	@$(BIN)/python -m tests.bench.control
	@$(BIN)/python -m tests.bench.history
	$(SAY) "Nodes: 2,000 agents that begin at once and report for 10 minutes"
	@$(BIN)/python -m tests.bench.nodes
	$(SAY) "Overview: 2,000 nodes, 14,000 sessions that run, 5,000 that wait"
	@$(BIN)/python -m tests.bench.overview
	$(SAY) "Console: 1,250 agents, 10,000 sessions, 50 browsers"
	@$(BIN)/python -m tests.bench.console
	$(SAY) "Waits: a year of 1,000,000 spans"
	@$(BIN)/python -m tests.bench.waits
	@$(BIN)/python -m tests.bench.utilization
	$(SAY) "GPU samples: bytes of each, the plot of a week"
	@$(BIN)/python -m tests.bench.gpu_samples
	$(SAY) "Backup: a database of a million rows, dumped, loaded and counted"
	@$(BIN)/python -m tests.bench.backup
	$(SAY) "Recovery: reservoir and master rebuilt on a bare lab node from bundle and backup"
	@$(BIN)/python -m tests.bench.recovery
	$(SAY) "Audit log: what it adds to a change, entries written a second, verification"
	@$(BIN)/python -m tests.bench.audit
	$(SAY) "Sessions: submit to RUNNING, penstock list"
	@$(BIN)/python -m tests.bench.session_start

clean: ## Remove what was built (the demo's cluster: make demo-down)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .ansible .import_linter_cache
