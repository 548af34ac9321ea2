# Two commands: `make up` trains connect four, `make test` proves that azq works here. Both build whatever is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHAT := -e .
PREFIX ?= /opt/azq
LOCKED := $(BIN)/python -m pip install -q --require-hashes
# Packages too: Python finds them where they lay when azq was installed.
CORE := $(shell find azq/core azq/nets/native -name '*.[ch]pp' 2>/dev/null) $(shell find azq workers daemon -name __init__.py 2>/dev/null) CMakeLists.txt

.PHONY: setup up install uninstall test release-tests drills mutants check sanitize wasm docs pictures lock clean

setup: $(VENV)/.built

$(BIN)/python:
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "azq needs Python 3.11 or newer with venv; on Debian: apt-get install python3-venv g++ make"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# Nothing is installed whose hash is not in the lock. torch comes first and alone, and what else is needed follows from its build: a CPU
# build where pip knows of one (`pip config set global.find-links FOLDER`), else the index's, which brings CUDA.
$(VENV)/.deps: pyproject.toml constraints.txt $(wildcard ops/locks/*) ops/requirements.py | $(BIN)/python
	@echo "azq: installing dependencies into $(VENV) (a few minutes, once)"
	$(LOCKED) -r ops/locks/pip.txt
	$(LOCKED) --no-deps -r ops/locks/torch-cpu.txt 2>/dev/null || $(LOCKED) --no-deps -r ops/locks/torch.txt
	$(BIN)/python ops/requirements.py locked > $(VENV)/requirements.txt
	$(LOCKED) -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/.built: $(VENV)/.deps $(CORE)
	@echo "azq: compiling the core"
	$(BIN)/python -m pip install -q --no-build-isolation --no-deps $(WHAT)
	@touch $@

up: setup
	$(BIN)/azq up

# As root: azq and an environment of its own below PREFIX, which services can read, then user, folders and units. Once more is an upgrade
# in place: settings and runs are kept, and what runs is restarted. It compiles below PREFIX too, so that root owns nothing here.
install:
	@rm -f $(PREFIX)/.built
	umask 022 && $(MAKE) setup VENV=$(PREFIX) WHAT=". -C build-dir=$(PREFIX)/build"
	$(PREFIX)/bin/azq systemd install
	systemctl try-restart azq-daemon azq-gateway azq-flower 'azq-worker@*' 'azq-inference@*' 'azq-learner@*'

# Settings in /etc/azq and runs in /var/lib/azq stay.
uninstall:
	@test -x $(PREFIX)/bin/azq -a -f $(PREFIX)/pyvenv.cfg || { echo "no azq is installed in $(PREFIX); name its PREFIX"; exit 2; }
	$(PREFIX)/bin/azq systemd uninstall
	rm -rf $(PREFIX)

# Tests mostly wait for processes; a file's tests stay together, for they share what they start. Tests and azq are compiled once, not by each.
test: setup
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 3 --dist loadfile

# What rarely tells and takes long, hours in all: before a release.
release-tests: setup
	$(BIN)/python -m pytest -m release

# One round of every drill: minutes, on a machine that does nothing else.
drills: setup
	$(BIN)/azq drill run all

# Small wrong changes to the modules that decide, which their tests have to notice: the better part of an hour; `SAMPLE=40` takes so many.
mutants: setup
	$(BIN)/python ops/mutants.py $(if $(SAMPLE),--sample $(SAMPLE) --seed $(or $(SEED),1))

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python ops/size.py

sanitize: setup
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/sanitize -G Ninja -DAZQ_SANITIZE=ON
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/sanitize
	./build/sanitize/azq_core_tests

# The core for browsers. Whoever changes the C++ that is in it commits what this writes: the same bytes wherever it runs.
wasm: $(VENV)/.wasm
	ZIG_GLOBAL_CACHE_DIR="$(abspath build/zig)" $(BIN)/python ops/wasm.py

$(VENV)/.wasm: ops/locks/wasm.txt | $(BIN)/python
	$(LOCKED) -r $<
	@touch $@

# Packages that few tests need: of `tracking.backends`, `azq sweep`, what Kubernetes is told and axe-core.
$(VENV)/.extras: ops/locks/extras.txt | setup
	$(LOCKED) -r $<
	@touch $@

# README's live table and dashboard, from ten minutes of connect four; wants playwright and chromium.
pictures: setup
	$(BIN)/python ops/pictures.py

# The pages as a site in build/site; a dead link ends it.
docs: $(VENV)/.docs
	rm -rf build/pages && mkdir -p build/pages && cp -R docs *.md LICENSE CITATION.cff build/pages/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

$(VENV)/.docs: ops/locks/docs.txt | $(BIN)/python
	$(LOCKED) -r $<
	@touch $@

lock: $(BIN)/python
	ops/lock.sh $(BIN)/python $(WHEELS)

clean:
	rm -rf build $(VENV)/.built $(VENV)/.deps $(VENV)/.wasm $(VENV)/.extras $(VENV)/.docs
