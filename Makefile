# Everything runs in .venv. `make demo` and `make test` set it up on first use and again when pyproject.toml changes.
# If the python3 found here already has torch (a CUDA image, say), the environment uses that one instead of downloading another.

PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
PYTEST ?=
WORKERS ?= auto
# Beside the NVRTC of constraints.txt: the one that the H200's records were made with, which tests/resources.json has budgets for too.
OTHER_NVRTC := .venv/nvrtc-13.0.88

# A .venv that is there is kept: say so to whoever names another Python or torch than it was made with.
MADE_WITH := $(shell cat .venv/.torch 2>/dev/null)
NAMED := $(foreach name,PYTHON TORCH,$(if $(filter command environment,$(firstword $(origin $(name)))),$($(name))))
ifneq ($(MADE_WITH),)
ifneq ($(filter-out $(MADE_WITH),$(NAMED)),)
$(info [setup] .venv is kept as it was made, with $(MADE_WITH): `make clean` first, for $(NAMED))
endif
endif

# What lint, docs, package and test need, for .ci/run: one pip in place of four.
EVERY := dev,lint,docs,package

.PHONY: help setup setup-all demo test browser test-all budgets package cubins lint format tables docs clean

help:
	@echo "make demo      set up, then verify mm32's own kernel on an example and show the page (mm32 demo)"
	@echo "make setup     only set up: .venv with mm32 and what its tests need"
	@echo "make setup-all set up all extras, and the tools of lint, docs and package, in one step"
	@echo "make test      set up, then run the tests (GPU tests too where there is a GPU); PYTEST=... adds arguments"
	@echo "make browser   install Chromium from Debian's packages, for the tests of HTML reports and the site, if there is none"
	@echo "make test-all  lint, docs and every test, what make test leaves out too; writes tests/record.json"
	@echo "make budgets   record registers, spills and shared memory of new and changed kernels, for two NVRTCs"
	@echo "make package   build the wheel and the sdist, check them, and use the wheel in an environment without this checkout"
	@echo "make cubins    compile the usual forms of the kernels for a wheel to hold (some 20 minutes on two cores)"
	@echo "make lint      ruff and mypy"
	@echo "make format    ruff's formatter and its fixes"
	@echo "make tables    rewrite the tables and pictures of README.md and docs/ from benchmarks/results/"
	@echo "make docs      build the pages and the API reference into site/; warnings are errors"
	@echo "make clean     remove .venv and the caches of this folder"

setup: .venv/.ready

setup-all: pyproject.toml constraints.txt | .venv/.torch
	$(call INSTALL,$(EVERY))
	@touch .venv/.cli .venv/.ready; touch .venv/.lint .venv/.docs .venv/.package

.venv/.torch:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo "mm32 needs Python 3.10 to 3.13; $(PYTHON) is `$(PYTHON) --version`: make PYTHON=python3.x"; exit 1; }
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then \
	    echo "[setup] .venv, with the torch that $(PYTHON) has"; $(PYTHON) -m venv --system-site-packages .venv; \
	    if ! $(BIN)/python -c 'import torch' 2>/dev/null; then `: that python3 is an environment itself: look there too`; \
	        $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	            > `$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'`/parent.pth; \
	    fi; \
	else \
	    echo "[setup] .venv, with $(TORCH) (a large download the first time)"; \
	    $(PYTHON) -m venv .venv && $(BIN)/pip install "$(TORCH)" "numpy>=1.26"; \
	fi
	@echo "$(PYTHON) $(TORCH)" > $@

# mm32 with the extra $(1), and with the CUDA bindings and compiler for torch's CUDA where these are not there.
define INSTALL
	@extras=$(1); \
	if ! $(BIN)/python -c 'import cuda.core; from cuda.bindings import nvrtc; nvrtc.nvrtcVersion()' 2>/dev/null; then \
	    extras=$(1),`$(BIN)/python -c 'import torch; print("cu12" if (torch.version.cuda or "13").startswith("12") else "cu13")'`; \
	fi; \
	pins="-c constraints.txt"; if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.version.cuda)'; then pins=; fi; \
	echo "[setup] mm32[$$extras]"; $(BIN)/pip install -q $$pins -e ".[$$extras]"
endef

# For the demo, without what the tests need: a third of the time.
.venv/.cli: pyproject.toml constraints.txt | .venv/.torch
	$(call INSTALL,cli)
	@touch $@

.venv/.ready: pyproject.toml constraints.txt | .venv/.torch
	$(call INSTALL,dev)
	@touch $@ .venv/.cli

.venv/.lint: .venv/.ready
	@echo "[setup] mm32[lint]"
	@$(BIN)/pip install -e ".[lint]"
	@touch $@

demo: .venv/.cli
	@$(BIN)/mm32 demo
	@echo "  The command is $(BIN)/mm32; after \`. $(BIN)/activate\` it is mm32."

# WORKERS=auto: a process for each core, as far as memory allows, the host's and the GPU's (tests/conftest.py).
RUN_TESTS = $(BIN)/python -m pytest -n $(WORKERS)

test: setup
	$(RUN_TESTS) $(PYTEST)

# Of tests/support/browser.py. A failure says what to do; tests that need a browser are then left out, and counted.
browser:
	@if $(PYTHON) tests/support/browser.py; then exit 0; fi; \
	if [ "`id -u`" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "no Chromium, and no apt-get as root to install it with: install Chromium, so that it is on the PATH" >&2; exit 1; \
	fi; \
	echo "[browser] apt-get install chromium"; apt="timeout 120 apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=10"; \
	export DEBIAN_FRONTEND=noninteractive; $$apt update >/dev/null; \
	$$apt install -y --no-install-recommends chromium >/dev/null; \
	$(PYTHON) tests/support/browser.py || { echo "no Chromium: apt-get could not install it (is there a network?)" >&2; exit 1; }

$(OTHER_NVRTC): | .venv/.ready
	@echo "[setup] $@"
	@$(BIN)/pip install --no-deps --target $@ nvidia-cuda-nvrtc==$(@:.venv/nvrtc-%=%)

test-all: lint docs $(OTHER_NVRTC)
	MM32_TEST_NVRTC=$(OTHER_NVRTC) $(RUN_TESTS) --all tests/test_resources.py
	$(RUN_TESTS) --all --record $(PYTEST)

budgets: $(OTHER_NVRTC)
	$(BIN)/python tests/test_resources.py --record
	MM32_TEST_NVRTC=$(OTHER_NVRTC) $(BIN)/python tests/test_resources.py --record

.venv/.package: .venv/.ready
	@echo "[setup] mm32[package]"
	@$(BIN)/pip install -e ".[package]"
	@touch $@

package: .venv/.package
	@$(BIN)/python tests/support/shares.py package $(BIN)/python -m pytest --all -q tests/test_package.py

cubins: setup
	$(BIN)/python benchmarks/prebuild.py

lint: .venv/.lint
	@$(BIN)/python tests/support/shares.py lint sh -exc '$(BIN)/ruff check .; $(BIN)/ruff format --check .; $(BIN)/mypy'

format: .venv/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/.docs: .venv/.ready
	@echo "[setup] mm32[docs]"
	@$(BIN)/pip install -e ".[docs]"
	@touch $@

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python tests/support/shares.py docs $(BIN)/mkdocs build --strict

tables: setup
	$(BIN)/python benchmarks/tables.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis site dist build
