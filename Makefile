# Everything runs from the locked environment in .venv: `make setup` builds it from envs/workflow.lock.txt, and
# `make tools` adds what tests, checks and examples need, from envs/test.lock.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SNAKEMAKE := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake --profile profiles/default

# ONLY=--last-failed runs what failed before.
# Environments that tests build with pip are not compiled either: for vLLM that takes a minute.
# Each target remembers its own failures, so that two may run at once.
PYTEST = PIP_COMPILE=0 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -o cache_dir=.pytest_cache/$@ $(ONLY)
# Three files of tests at a time, those with long tests first: many wait for servers. tests/conftest.py says what stays together.
PARALLEL := -n 3 --no-loadscope-reorder

# Python compiles a module when it is first imported; compiling all of them would take 80 MB more.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps

define BUILD_VENV
	$(PYTHON) -m venv $(@D)
	$(INSTALL) --require-hashes -r $<
	$(INSTALL) --no-build-isolation --editable .
	touch $@
endef

.PHONY: setup tools demo status test suite gate nightly check gpu-pack gpu-test gpu-rehearsal bench docs format lock lock-tools

setup: $(VENV)/.complete

$(VENV)/.complete: envs/workflow.lock.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Servelab needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(BUILD_VENV)

tools: $(VENV)/.tools  ## what tests and checks need, and DuckDB for docs/results.md

$(VENV)/.tools: envs/test.lock.txt $(VENV)/.complete
	$(INSTALL) --require-hashes -r $<
	touch $@

demo: setup  ## the main job on the embedded default: a real llama.cpp server, a real small model
	$(SNAKEMAKE) --config 'studies=[cpu-smollm2]'
	@$(BIN)/servelab report results/studies/cpu-smollm2

status: setup  ## how far studies are, also while the workflow runs; STUDY=name for one
	@$(BIN)/servelab status $(STUDY)

test: tools  ## checks and the fast tests, at the same time
	@$(MAKE) --no-print-directory --jobs 2 check suite

suite: tools
	$(PYTEST) $(PARALLEL) -m "not slow and not gate" tests/engines tests/h100 tests/servers tests/unit

gate: tools  ## what .ci/run shows besides: a small study and what reruns of it, one start of vLLM, one study on Slurm
	-tests/install_packages.sh
	$(PYTEST) $(PARALLEL) -m gate tests/engines tests/workflow tests/slurm

nightly: tools  ## all that .ci/run has no time for: real vLLM, Slurm, archives, containers, upgrades
	-tests/install_packages.sh
	$(PYTEST) -n 2 --no-loadscope-reorder -m "(slow or slurm) and not gate" tests/engines tests/h100 tests/workflow tests/slurm tests/unit

GPU_TEST := -m pytest -p no:xdist -p no:cacheprovider -m gpu -s tests/gpu

gpu-pack:  ## with a network: what gpu-test takes to a machine without one; PYTHON as there, python3.12 say
	$(PYTHON) -m venv results/gpu-pack-venv
	results/gpu-pack-venv/bin/python -m pip install --quiet --disable-pip-version-check pydantic pyyaml
	PYTHONPATH=scripts results/gpu-pack-venv/bin/python tests/gpu/pack.py --output .gpu-pack --downloads results/downloads

gpu-test:  ## on one NVIDIA GPU, no network: llama.cpp built with CUDA, a whole small study; docs/cluster.md
	@$(PYTHON) tests/gpu/prepare.py
	.venv-gpu/bin/python $(GPU_TEST)

gpu-rehearsal: tools  ## the same without a GPU: doubles of its tools, and the CPU's llama.cpp
	SERVELAB_GPU=doubles $(BIN)/python $(GPU_TEST)

bench: tools  ## the client beside others, and what it can tell apart; docs/evidence.md
	$(PYTEST) -m bench -p no:xdist -s tests/bench

check: tools  ## format, lint, types, order of imports, plain words, docs and schema up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md docs config/*.yaml config/studies config/sites profiles rules scripts
	$(BIN)/python scripts/generate_docs.py --check
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake --lint

format: tools
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules

docs: setup  ## docs/ and config/schema/ made from the types
	$(BIN)/python scripts/generate_docs.py

# PyTorch's CPU builds come from its own index, or from where pip was told to find wheels.
WHEELS ?= $(PIP_FIND_LINKS)

lock: setup  ## one lock as of its release: make lock ENGINE=vllm VERSION=0.33.0; envs/recipes.yaml, CONTRIBUTING.md
	@test -n "$(ENGINE)" -a -n "$(VERSION)" || { echo "say which: make lock ENGINE=vllm VERSION=0.33.0, or make lock-tools for those of the workflow itself"; exit 2; }
	@$(BIN)/python scripts/lock_environment.py --name '$(ENGINE)' --version '$(VERSION)' \
		--wheels '$(WHEELS)' --as-of '$(AS_OF)' --lock '$(LOCK)'

LOCK_TOOLS = $(BIN)/uv pip compile --no-config --python-version 3.11 --generate-hashes --quiet --universal \
	--custom-compile-command "make lock-tools" $(2) envs/$(1).in --output-file envs/$(1).lock.txt

lock-tools: setup  ## the locks of the workflow and its tests, from envs/*.in
	$(call LOCK_TOOLS,workflow,pyproject.toml)
	$(call LOCK_TOOLS,test)
