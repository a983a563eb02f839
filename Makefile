# Everything a user types. `make demo` and `make test` need nothing before them.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
INSTALL ?= $(PY) -m pip install $(if $(CPU),--extra-index-url https://download.pytorch.org/whl/cpu)

.PHONY: help setup demo reproduce-tables test test-all test-gpu check-results networks bench bench-claims lint format tensorboard data tables figures clean

help: ## What there is.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make .venv with everything in it; CPU=1 takes torch without CUDA, 1 GB and not 6.

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch and some eighty other packages into $(VENV): minutes"
	$(INSTALL) --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## Two capsule networks and a CNN, three seeds, on a sample of MNIST: two minutes on a CPU.
	$(PY) scripts/reproduce_tables.py demo --jobs=2 paths.results=results/demo paths.logs=logs/demo

# make reproduce-tables STUDIES="jiao_table2 huang_table2" BUDGET=laptop SEEDS=3 TIME_LIMIT=600 ARGUMENTS="--jobs=4"
reproduce-tables: $(STAMP) ## Run STUDIES (all) with BUDGET (paper) and SEEDS (3), for TIME_LIMIT minutes; make tables.
	$(PY) scripts/reproduce_tables.py $(or $(STUDIES),all) $(if $(BUDGET),--budget=$(BUDGET)) $(if $(SEEDS),--seeds=$(SEEDS)) \
		$(if $(TIME_LIMIT),--time-limit=$(TIME_LIMIT)) $(ARGUMENTS)

tables: $(STAMP) ## The papers' tables, measured, out of the records: results/tables and README.md.
	$(PY) scripts/aggregate.py

figures: $(STAMP) ## Draw the papers' figures, out of records and logs: results/figures.
	$(PY) -m capsexp figures

networks: $(STAMP) ## Keep the best network of each row, out of LOGS (logs), in half precision: results/networks.
	$(PY) scripts/keep_networks.py $(LOGS)

test: $(STAMP) ## The fast tests.
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --dist worksteal

test-all: $(STAMP) ## All tests; those on full data sets need CAPSEXP_DATA.
	$(PY) -m pytest -m 'not gpu' --timeout=1800

test-gpu: $(STAMP) ## The tests that need a CUDA device.
	$(PY) -m pytest -m gpu

check-results: $(STAMP) ## Compare the committed tables, README and figures with the records.
	$(PY) scripts/aggregate.py --check
	$(PY) -m capsexp figures --check

bench: $(STAMP) ## Time and memory of a training step, fast against reference, to results/benchmarks; 4 minutes on a GPU.
	$(PY) benchmarks/bench.py

bench-claims: $(STAMP) ## Processor time of the networks that claims on time compare; capsexp tables then judges them.
	$(PY) benchmarks/claims.py

lint: $(STAMP) ## Style, format and types.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(STAMP) ## Bring the code into its format.
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

data: $(STAMP) ## Check, download and decode all data sets.
	$(PY) scripts/prepare_data.py

tensorboard: $(STAMP) ## Look at the runs.
	$(VENV)/bin/tensorboard --logdir logs/tensorboard --samples_per_plugin images=100

clean: ## Remove the environment and what tools leave.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
