# Two commands: `make demo` (raw text to a released model) and `make test`. Both set up from nothing.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# the rooms are top-level folders called data, eval, ...: keep them off sys.path
export PYTHONSAFEPATH = 1

.PHONY: setup demo test test-slow lint clean

setup: $(VENV)/.done

$(VENV)/.done: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/gristmill run nano

# one process a core, each on one thread; a file's tests stay together and share its fixtures
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow" -n auto --dist loadfile

test-slow: setup
	$(BIN)/python -m pytest -q -m slow
	$(BIN)/python tests/chaos.py --seconds 60

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) runs
