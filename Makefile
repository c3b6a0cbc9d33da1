# Everything runs in .venv. `make demo` and `make test` set it up on first use and again when pyproject.toml changes.
# If the python3 found here already has torch (a CUDA image, say), the environment uses that one instead of downloading another.

PYTHON ?= python3
TORCH ?= torch==2.13.0
CUDA_EXTRA ?= cu13
BIN := .venv/bin
CASE ?= examples/matmul_tt.py
EXPORT_PYTEST ?=

.PHONY: setup demo test lint types format records clean help

help:
	@echo "make demo    set up, then verify $(CASE) with mm32's own kernel and show the page"
	@echo "make test    set up, then run the tests (GPU tests too where there is a GPU)"
	@echo "make lint    ruff and mypy"
	@echo "make tables  rewrite the tables in README.md and docs/ from benchmarks/results/"
	@echo "make clean   remove .venv and caches of this folder"

setup: .venv/.ready

.venv/.ready: pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "mm32 needs Python 3.10 or later: make PYTHON=python3.x $(MAKECMDGOALS)"; exit 1; }
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then \
	    echo "[setup] .venv, with the torch that $(PYTHON) has"; $(PYTHON) -m venv --system-site-packages .venv; \
	else \
	    echo "[setup] .venv, with $(TORCH) (a large download the first time)"; $(PYTHON) -m venv .venv && $(BIN)/pip install "$(TORCH)"; \
	fi
	@echo "[setup] mm32 and its development tools"
	@$(BIN)/pip install -e ".[$(CUDA_EXTRA),dev,lint]"
	@touch $@

demo: setup
	$(BIN)/mm32 verify $(CASE) --kernel auto

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

tables: setup
	$(BIN)/python benchmarks/tables.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
