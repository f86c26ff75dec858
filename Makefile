# make demo      the demo on built-in images; installs the core only
# make test      lint, types and tests; installs what the tests require
# make docs      update the generated parts of the documentation, and build the site in site/
# make soak      inject faults for ten minutes (MINUTES=2 SEED=7), and check that no data is lost
# make release   wheel, source archive and SBOM of the last commit in dist/; test the wheel
# make setup | lint | bench | clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := python -m pip install --quiet --disable-pip-version-check --no-deps

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
	$(BIN)/python tools/release.py dist
	$(call install,build/smoke,core,dist/*.whl)
	cd build && smoke/bin/python ../tools/smoke.py

setup: $(VENV)/all

# $(call install,ENVIRONMENT,LOCK,BITPRINT): the packages of a lock file, and Bitprint. torch is the
# CPU build if pip finds it, and otherwise the build of the package index, which on Linux requires
# CUDA. "pip check" fails if a package is missing.
define install
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	$(1)/bin/$(PIP_INSTALL) --require-hashes -r requirements/cpu.txt >/dev/null 2>&1 || \
		echo "pip found no CPU build of torch; the build of the package index follows"
	$(1)/bin/$(PIP_INSTALL) --require-hashes -r requirements/$(2).txt
	if $(1)/bin/python -m pip show torch | grep -q '^Requires:.*cuda'; then \
		$(1)/bin/$(PIP_INSTALL) --require-hashes -r requirements/cuda.txt; fi
	$(1)/bin/$(PIP_INSTALL) --no-build-isolation $(3)
	$(1)/bin/python -m pip check
endef

# The stamps record which packages the environment contains.
$(VENV)/core: pyproject.toml requirements/core.txt
	$(call install,$(VENV),core,-e .)
	touch $@

$(VENV)/all: pyproject.toml requirements/all.txt
	$(call install,$(VENV),all,-e .)
	touch $(VENV)/core $@

clean:
	rm -rf $(VENV) demo site build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
