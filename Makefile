# Every target makes .venv first when it is missing or older than requirements/. Python 3.11 or newer is all it takes.
# A Python of your own choice: make PYTHON=/path/to/python3.13 …
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
PORT ?= 8000
BIN := .venv/bin
INSTALLED := .venv/.installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --require-hashes -q
# Every program of Accessa imports much of the same: compiled once, wherever the environment forbids it otherwise.
export PYTHONDONTWRITEBYTECODE :=
# Needs no database: the models are compared with the migrations, not with what was migrated.
NO_DATABASE := DATABASE_URL=django.db.backends.dummy://

.PHONY: venv demo serve stop test lint suite coverage check docs images messages lock
.DEFAULT_GOAL := check

venv: $(INSTALLED)

# pip knows settings of its own machine that uv does not read, a mirror above all: where uv fails, pip installs.
$(INSTALLED): requirements/installer.txt requirements/base.txt requirements/dev.txt
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Accessa needs Python 3.11 or newer. Name yours: make PYTHON=/path/to/python3.13 …" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || "$(PYTHON)" -m venv --clear .venv
	@echo "Installing into .venv …"
	@$(PIP) -r $<
	@$(BIN)/uv pip install --python $(BIN)/python --require-hashes -q $(addprefix -r ,$^) || $(PIP) $(addprefix -r ,$^)
	@touch $@

# Separate databases: vectors of the fake Titan must not mix with real ones, nor a made old system with what is here.
demo: $(INSTALLED)
	@$(if $(STATUTES)$(LEGACY),ACCESSA_VAR="$${ACCESSA_VAR:-var}/$(if $(STATUTES),statutes,legacy)") $(BIN)/python manage.py demo \
		$(if $(VENDORS),--vendors $(VENDORS)) $(if $(CONNECTORS),--connectors $(CONNECTORS)) \
		$(if $(STATUTES),--statutes) $(if $(LEGACY),--legacy) $(PDF)

serve: $(INSTALLED)
	@$(BIN)/python manage.py serve --bind 127.0.0.1:$(PORT)

stop: $(INSTALLED)
	@$(BIN)/python manage.py serve --stop

MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
# Twice as many processes as CI has cores: tests wait about as much as they work.
PYTEST := $(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder

# The daily loop: no killed processes, no browser, no fuzzing, each kind of vendor fault at one call site.
test: $(INSTALLED)
	$(PYTEST) -m "not slow and not matrix"

# Lines of the product, at least 95 % (.coveragerc, where what runs only in processes of its own is left out by name). Counting
# takes about a third more of the tests' own time.
coverage: $(INSTALLED)
	$(PYTEST) --cov --cov-report=term:skip-covered

check: lint suite

# All of it that runs no test.
lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python manage.py check
	$(NO_DATABASE) $(BIN)/python manage.py makemigrations --check --dry-run
	$(MKDOCS)

suite: $(INSTALLED)
	$(PYTEST)

# Sentences of tenants' pages and mails: collected into locale/, compiled; those without a translation are printed.
messages: $(INSTALLED)
	DJANGO_SETTINGS_MODULE=accessa.settings $(BIN)/python -m testing.message_catalogs

# The documentation as a site, in var/site. A broken link between its pages fails.
docs: $(INSTALLED)
	$(MKDOCS)

# The pictures of the documentation, drawn from the pages as they are.
images: $(INSTALLED)
	SCREENSHOTS=docs/images $(BIN)/pytest -q accessa/tests/test_docs_images.py

lock: $(INSTALLED)
	for set in installer base dev optional sbom; do \
		UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile -q --generate-hashes --no-strip-extras --no-emit-index-url \
			--no-emit-find-links --no-annotate --python-version 3.11 --universal requirements/$$set.in \
			-o requirements/$$set.txt || exit 1; \
	done
