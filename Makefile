# make run     opens the panel on the embedded engine
# make test    runs the tests
# make lint    ruff, mypy, import-linter

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tests of real gangs want the machine to themselves; all others share it.
PARTS := $(filter-out tests/server/ tests/e2e/ tests/support/,$(sort $(wildcard tests/*/)))
SETUP := pyproject.toml tools/install.py $(wildcard constraints/*.txt)

.PHONY: run test lint snapshots clean

run: $(VENV)/.run
	$(BIN)/moepanel

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PARTS)
	$(BIN)/python -m pytest tests/server tests/e2e

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

snapshots: $(VENV)/.test
	$(BIN)/python -m pytest tests/screens --snapshot-update

$(VENV)/.run: $(SETUP)
	$(PYTHON) tools/install.py $(VENV)
	touch $@

$(VENV)/.test: $(SETUP)
	$(PYTHON) tools/install.py $(VENV) test
	touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) build dist *.egg-info
