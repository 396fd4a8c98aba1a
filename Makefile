# Everything runs in a virtual environment of its own; PYTHON chooses the interpreter.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
KERNELS := $(wildcard clumsies/_native/*.pyx)
BUILD_FILES := pyproject.toml setup.cfg $(KERNELS)

.PHONY: demo test bench bench-short eval fuzz lint types format wheel clean

demo: $(VENV)/.installed
	@$(BIN)/clumsies demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: $(VENV)/.installed-bench
	$(BIN)/python -m pytest benchmarks -q --benchmark-json=benchmarks.json
	$(BIN)/python -m benchmarks.results benchmarks.json

bench-short: $(VENV)/.installed-bench
	$(BIN)/python -m pytest benchmarks -q --short --benchmark-json=benchmarks.json

eval: $(VENV)/.installed-bench
	$(BIN)/python -m evaluation all --write evaluation/RESULTS.md

# The property tests of the kernels, the parsers and the Server's interface, with many more examples
# than in `make test`.
fuzz: $(VENV)/.installed-test
	$(BIN)/python -m pytest --hypothesis-profile=fuzz -q tests/native tests/engine/test_units.py \
		tests/engine/test_state.py tests/server/test_schema.py $(PYTEST_ARGS)

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-lint
	$(BIN)/mypy

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.installed
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info clumsies/_native/*.so clumsies/_native/*.c

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

# One editable install compiles the kernels; a larger set of extras marks the smaller ones as done.
INSTALL = @echo "Installing clumsies into $(VENV) (compiles three kernels, about a minute) ..." && \
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable

$(VENV)/.installed: $(VENV)/.created $(BUILD_FILES)
	$(INSTALL) .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.created $(BUILD_FILES)
	$(INSTALL) '.[test]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-lint: $(VENV)/.created $(BUILD_FILES)
	$(INSTALL) '.[test,lint]'
	@touch $(VENV)/.installed $(VENV)/.installed-test $@

$(VENV)/.installed-bench: $(VENV)/.created $(BUILD_FILES)
	$(INSTALL) '.[test,bench]'
	@touch $(VENV)/.installed $(VENV)/.installed-test $@
