# make demo   the whole loop on embedded data; installs the core only
# make test   lint, types and tests; installs what the tests need
# make docs   the documentation site in site/, its generated parts brought in step first
# make soak   faults for ten minutes (MINUTES=2 SEED=7); says that nothing acknowledged was lost
# make release   wheel and sdist in dist/, the wheel tried in an empty environment
# make setup | lint | bench | clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock

MINUTES ?= 10
CODE := src tests benchmarks tools soak fuzz conftest.py

.PHONY: demo test setup lint bench docs soak release clean

demo: $(VENV)/core
	$(BIN)/bitprint demo --out demo

test: lint
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/all
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

bench: $(VENV)/all
	$(BIN)/python benchmarks/evaluation.py
	$(BIN)/python benchmarks/training.py --backbone small --images 2000
	$(BIN)/python benchmarks/search.py --quick

docs: $(VENV)/all
	$(BIN)/python tools/docs.py
	$(BIN)/mkdocs build --strict --quiet

soak: $(VENV)/all
	OMP_NUM_THREADS=1 $(BIN)/python -m soak --minutes $(MINUTES) $(addprefix --seed ,$(SEED))

release: $(VENV)/all
	rm -rf dist build/smoke
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/smoke
	build/smoke/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock dist/*.whl
	cd build && smoke/bin/python ../tools/smoke.py

setup: $(VENV)/all

# The stamps say which set of packages the environment holds.
$(VENV)/core: pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/all: pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[test]"
	touch $(VENV)/core $@

clean:
	rm -rf $(VENV) demo site build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
