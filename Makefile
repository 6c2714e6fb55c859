# Each target starts from nothing: it makes .venv, installs by the pins, and runs.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: install demo test check results format clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: install
	$(BIN)/posterity demo

test: check
	$(BIN)/python -m pytest -n $(WORKERS)

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

# Every figure and number in README.md and docs/ about finite MDPs, from nothing: about ten minutes on two cores.
results: install
	rm -rf runs/results && mkdir -p runs/results
	$(BIN)/posterity run item-search --method blrl --seeds 5 --out runs/results/item-search-blrl
	$(BIN)/posterity run item-search --method boss --seeds 5 --out runs/results/item-search-boss
	$(BIN)/posterity theory transfer --seeds 10 --tasks 60 --out runs/results/random-mdp
	for run in item-search-blrl item-search-boss random-mdp/blrl random-mdp/boss; do \
	  mkdir -p results/finite/$$run && cp runs/results/$$run/config.toml runs/results/$$run/versions.json results/finite/$$run/ && \
	  gzip -9 -n -c runs/results/$$run/records.jsonl > results/finite/$$run/records.jsonl.gz || exit 1; done
	$(BIN)/posterity report results/finite/item-search-blrl results/finite/item-search-boss --tasks 51-300 --out results/finite/item-search
	$(BIN)/posterity report results/finite/random-mdp/blrl results/finite/random-mdp/boss --out results/finite/random-mdp

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .pytest_cache .ruff_cache build dist src/*.egg-info
