# Two commands: `make up` trains connect four, `make test` proves that azq works here. Both build whatever is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := embedded eval plot s3
# Older ones do not take hashes from a constraints file.
PIP := 26.3
CORE := $(shell find azq/core -name '*.[ch]pp' 2>/dev/null) CMakeLists.txt

.PHONY: setup up test drills check sanitize lock clean

setup: $(VENV)/.built

$(BIN)/python:
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "azq needs Python 3.11 or newer with venv; on Debian: apt-get install python3-venv g++ make"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# torch comes first and alone: its build (CPU or CUDA) is the machine's choice, so its version is pinned and its hash is not.
$(VENV)/.deps: pyproject.toml constraints.txt ops/requirements.py | $(BIN)/python
	@echo "azq: installing dependencies into $(VENV) (a few minutes, once)"
	$(BIN)/python -m pip install -q "pip==$(PIP)"
	$(BIN)/python -m pip install -q --no-deps "torch==2.13.0"
	$(BIN)/python ops/requirements.py $(EXTRAS) > $(VENV)/requirements.txt
	$(BIN)/python -m pip install -q -r $(VENV)/requirements.txt -c constraints.txt
	@touch $@

$(VENV)/.built: $(VENV)/.deps $(CORE)
	@echo "azq: compiling the core"
	$(BIN)/python -m pip install -q --no-build-isolation --no-deps -e .
	@touch $@

up: setup
	$(BIN)/azq up

# Tests mostly wait for processes; a file's tests stay together, for they share what they start.
test: setup
	$(BIN)/python -m pytest -n 3 --dist loadfile

# One round of every drill: minutes, on a machine that does nothing else.
drills: setup
	$(BIN)/azq drill run all

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

sanitize: setup
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/sanitize -G Ninja -DAZQ_SANITIZE=ON
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/sanitize
	./build/sanitize/azq_core_tests

lock: $(BIN)/python
	ops/lock.sh $(BIN)/python

clean:
	rm -rf build $(VENV)/.built $(VENV)/.deps
