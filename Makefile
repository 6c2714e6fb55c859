# Each target starts from nothing: it makes .venv, installs by the pins, and runs.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: install demo test test-browser test-docs check docs results soak format clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,browser,mujoco,metaworld,tensorboard,video]'
	@touch $@

demo: install
	$(BIN)/posterity demo

# pyright needs one core for most of a minute, so it runs beside the tests; what it says comes after what they say.
test: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@echo "pytest, and pyright beside it"; $(BIN)/pyright >.venv/pyright.txt 2>&1 & checking=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$checking; types=$$?; echo pyright; cat .venv/pyright.txt; exit $$((tests || types))

# The report's page in a real browser, which is installed where it is missing (Debian or Ubuntu, as root).
test-browser: install
	command -v chromium >/dev/null && command -v chromedriver >/dev/null || apt-get install -y --no-install-recommends chromium chromium-driver
	$(BIN)/python -m pytest tests/report/test_page.py -k in_a_browser -rs

# Every command that README and docs print, with tiny budgets: about a quarter of an hour of one core. `make test` has a short form.
test-docs: install
	$(BIN)/python tests/soak/printed.py --out results/soak/printed.json

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

# The documentation site, into build/site. Needs the network once, for .venv/docs-installed.
docs: .venv/docs-installed
	$(BIN)/python docs/site.py
	$(BIN)/properdocs build --strict --quiet
	@echo "build/site is the site. To look at it: $(BIN)/python -m http.server --directory build/site 8000"

.venv/docs-installed: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

# Every record and figure about finite MDPs, from nothing: about an hour on two cores. The others' commands: docs/results.md.
results: install
	results/finite/make.sh

# Faults for long: kills at random moments, damaged input, workers of a sweep killed and a Ray node lost. Hours on two
# cores; the short form is part of `make test`.
soak: install
	$(BIN)/python tests/soak/kills.py --kills 100
	$(BIN)/python tests/soak/fuzz.py --cases 10000
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray,slurm]'
	$(BIN)/python tests/soak/sweep.py kills
	$(BIN)/python tests/soak/sweep.py node

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .pytest_cache .ruff_cache build dist src/*.egg-info
