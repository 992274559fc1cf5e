# Two commands do everything on a fresh machine: `make demo` and `make test`. They need Python >= 3.11, gcc and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SCENARIO ?= mixed

.PHONY: demo run test e2e pictures mps-control check image sbom bench golden proto docs dashboards manifests tools deploy-tools lock clean

demo: $(VENV)/.installed ## run the exporter on a simulated shared-GPU node, with a live table
	$(BIN)/podgpu demo --scenario $(SCENARIO) $(ARGS)

run: $(VENV)/.installed ## run the exporter on this node (needs an NVIDIA driver)
	$(BIN)/podgpu exporter $(ARGS)

test: $(VENV)/.installed-dev tools ## every test that needs neither root nor a cluster
	-@$(BIN)/python -m tests.mps.fetch
	$(BIN)/python -m pytest $(ARGS)

e2e: $(VENV)/.installed-dev tools ## rules and dashboards on a real Prometheus and Alertmanager, beside simulated nodes
	$(BIN)/python -m pytest -m e2e tests/e2e $(ARGS)

pictures: $(VENV)/.installed-dev tools ## draw the dashboards into docs/images; needs npm, fetches Chromium
	@command -v chromium >/dev/null || test -n "$$CHROMIUM" || test -e .cache/debian/usr/lib/chromium/chromium || \
		$(BIN)/python -m tools.debian_packages chromium --with-dependencies
	$(BIN)/python -m tools.pictures $(ARGS)

tools: $(VENV)/.installed-dev ## promtool, Prometheus, amtool and Alertmanager, unless they are on the PATH
	@$(BIN)/python -m tools.debian_packages prometheus prometheus-alertmanager --programs promtool prometheus amtool

mps-control: $(VENV)/.installed-dev ## fetch the real MPS control daemons that the simulated one is tested against
	$(BIN)/python -m tests.mps.fetch

check: $(VENV)/.installed-dev tools deploy-tools ## format, lint, types, layers, generated files, manifests, chart, Dockerfile
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.manifests --check
	$(BIN)/python -m pytest -m deploy tests/deploy

deploy-tools: $(VENV)/.installed-dev ## kubectl, helm, schemas and linters for deploy/, charts/ and the Dockerfile
	@$(BIN)/python -m tools.deploy_tools

manifests: $(VENV)/.installed-dev ## write the manifests that wrap rules and dashboards anew
	$(BIN)/python -m tools.manifests

image: $(VENV)/bin/python ## build the container images with buildah and run them; needs root on Debian or Ubuntu
	$(BIN)/python -m tools.image $(ARGS)

sbom: deploy-tools ## bill of materials of the image's Python packages, in CycloneDX, into build/
	@mkdir -p build
	.cache/deploy/environment/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-format JSON \
		--output-file build/podgpu.cdx.json requirements.txt

bench: $(VENV)/.installed-dev ## speed and size against their targets, one JSON line each
	$(BIN)/python -m benchmarks $(ARGS)

golden: $(VENV)/.installed-dev ## write the golden pages anew; review the difference
	$(BIN)/python -m pytest tests/whole/test_golden_pages.py tests/whole/test_top.py --write-golden -q

proto: $(VENV)/.installed-dev ## generate the gRPC code anew
	$(BIN)/python -m podresources.generate

docs: $(VENV)/.installed-dev ## generate docs/metrics.md and docs/configuration.md anew
	$(BIN)/python -m enforcer.documentation metrics > docs/metrics.md
	$(BIN)/python -m enforcer.documentation configuration > docs/configuration.md

dashboards: $(VENV)/.installed-dev ## write dashboards/*.json anew
	$(BIN)/python -m dashboards.builder

lock: $(VENV)/.installed-dev ## resolve the dependencies anew
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate -q pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate -q pyproject.toml --group dev -c requirements.txt -o requirements-dev.txt
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate -q --group deploy -o requirements-deploy.txt
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate -q --group build -o requirements-build.txt

clean:
	rm -rf $(VENV) build dist

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "podgpu needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.txt
	touch $@
