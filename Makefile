# make quickstart   train an agent with HGPO on household games, on a CPU, and see what changed
# make test         run the quick tests
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# One process for each core, four at most: each has to load PyTorch.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses=4 --dist worksteal

.PHONY: quickstart test test-slow lint types imports check bench bench-check verl-smoke verl-test clean

quickstart: $(INSTALLED)
	@$(BIN)/hgpo train recipes/quickstart/hgpo.toml --continue
	@$(BIN)/hgpo inspect runs/quickstart

test: $(INSTALLED)
	@$(PYTEST) -m "not slow"

test-slow: $(INSTALLED)
	@$(PYTEST) -m slow

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

# verl has pins of its own, so it lives in an environment of its own.
verl-smoke: .venv-verl/.installed
	@.venv-verl/bin/python -W ignore tests/integration/verl_smoke.py

verl-test: .venv-verl/.installed
	@.venv-verl/bin/python -m pytest tests/unit/integrations tests/integration/test_verl_compose.py tests/integration/test_verl_queue.py

.venv-verl/.installed: pyproject.toml constraints-verl.txt
	@test -x .venv-verl/bin/python || $(PYTHON) -m venv .venv-verl
	@.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-verl.txt -e ".[verl]" pytest pytest-timeout hypothesis
	@touch $@

clean:
	rm -rf .venv .venv-verl .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing pinned dependencies into .venv (once; PyTorch is the large one) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,report,dev]"
	@touch $@
