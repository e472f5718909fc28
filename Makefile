# SPDX-License-Identifier: Apache-2.0
# `make sweep` and `make test` are all that a newcomer needs: both install what is missing first. A sweep measures this
# kernel as soon as that can be done, and only then installs and builds what the lab needs.

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.PHONY: sweep quick test mutants test-kernel test-races test-ansible kernels setup ansible lint notebooks benchmark lock clean help costs digests nightly

VENV := .venv
BIN := $(VENV)/bin
WORKLOAD ?= workloads/quick.toml
# The first result of a sweep: the same workload, with an earlier snapshot and less of what is normal.
FIRST ?= --set snapshot.at=3s --set run.duration=8s
SWEEP ?= workloads/lab/papers.toml
MACHINE ?= --icount --cpus 4 --memory 2GiB

# Debian packages: the compilers and libraries of the native parts, Python's venv, the server under test.
RUN_PACKAGES := build-essential clang llvm cmake ninja-build pkg-config bpftool \
	libbpf-dev libelf-dev zlib1g-dev python3-venv redis-server redis-tools fonts-dejavu-core

# What builds kernels and boots them; what checks style and memory.
PACKAGES := flex bison bc libssl-dev dwarves ccache kmod cpio rsync xz-utils fakeroot linux-source-6.1 linux-config-6.1 \
	qemu-system-x86 mmdebstrap e2fsprogs openssh-client busybox-static \
	clang-format libclang-rt-14-dev git

NATIVE := CMakeLists.txt $(shell find harness/loadgen bpf -type f)

# An editable install lists the modules that there are, so a new one must reach it too.
MODULES := $(shell find harness/forktail -type d -not -name __pycache__)

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1 - /p' Makefile

sweep: $(VENV)/runs ## measure this kernel first, then build the others and compare all of them in the lab
	@echo "First this host's own kernel, in half a minute; the other kernels follow."
	@$(BIN)/forktail run $(WORKLOAD) $(FIRST) || { code=$$?; [ $$code != 130 ] || exit $$code; \
		echo "This result is not a valid one; what follows does not depend on it."; }
	@$(MAKE) --no-print-directory $(VENV)/packages
	$(BIN)/forktail sweep --lab $(MACHINE) $(SWEEP)

quick: $(VENV)/runs ## run the quick workload on this kernel and print where its report lies
	$(BIN)/forktail run $(WORKLOAD)

test: setup ansible lint ## run every check and test
	$(BIN)/pytest

test-kernel: setup ## run tests/kernel on debug kernels and write docs/kernel-test-report.md
	$(BIN)/forktail kernel build all --debug
	FORKTAIL_KERNEL_CHECKS=debug FORKTAIL_KERNEL_REPORT=docs/kernel-test-report.md FORKTAIL_KERNEL_GUESTS=$$(nproc) \
		FORKTAIL_KERNEL_KEPT=build/kernel-tests $(BIN)/pytest tests/kernel

test-races: setup ## run tests/kernel on kernels that look for races and leaks and write docs/kernel-race-report.md
	$(BIN)/forktail kernel build all --races
	FORKTAIL_KERNEL_CHECKS=races FORKTAIL_KERNEL_REPORT=docs/kernel-race-report.md FORKTAIL_KERNEL_GUESTS=$$(($$(nproc) / 4 + 1)) \
		FORKTAIL_KERNEL_KEPT=build/kernel-tests $(BIN)/pytest tests/kernel

mutants: $(VENV)/mutants/installed ## change the analysis in small ways, see that a test fails for each, print the score (MUTATED="window clock")
	PYTHONPATH=$(CURDIR)/$(VENV)/mutants $(BIN)/python tests/mutants/mutants.py $(MUTATED)

test-ansible: kernels ansible ## run the playbooks whole, in guests of the lab
	$(BIN)/pytest -m ansible

costs: setup kernels ## count what page faults, forks and the copying of page tables cost on each kernel, in instructions
	@rm -f build/costs.txt; mkdir -p build
	FORKTAIL_COSTS=build/costs.txt $(BIN)/pytest -rA tests/kernel/test_costs.py; status=$$?; cat build/costs.txt; exit $$status

digests: setup kernels ## compare 100 snapshots of each kernel with what the server held when it forked
	@rm -f build/digests.txt; mkdir -p build
	FORKTAIL_DIGESTS=100 FORKTAIL_DIGESTS_REPORT=build/digests.txt $(BIN)/pytest tests/kernel/test_digests.py; \
		status=$$?; cat build/digests.txt; exit $$status

nightly: kernels ansible ## sweep in a lab guest that counts instructions, and compare with the newest clean night
	FORKTAIL_LAB_HOSTS=lab1 FORKTAIL_LAB_MEMORY=2GiB $(VENV)/ansible/bin/ansible-playbook \
		-i playbooks/inventory/lab playbooks/nightly.yml -e workload=workloads/lab/nightly.toml \
		-e thresholds=playbooks/lab-night.toml $(NIGHTLY)

kernels: setup ## build the lab's kernels, unless they are in the cache
	$(BIN)/forktail kernel build all

setup: $(VENV)/installed ## install what is missing: Debian packages, a virtual environment, the native parts

ansible: $(VENV)/ansible/installed ## install Ansible, in an environment of its own

lint: setup ## check style, types and licence headers
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pre-commit run --all-files --show-diff-on-failure

notebooks: setup ## write the notebooks from their sources and draw them on the newest sweep, into build/notebooks
	$(BIN)/jupytext --quiet --to ipynb --update --set-kernel python3 notebooks/*.py
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jupyter nbconvert --to html --execute \
		--log-level=ERROR --ExecutePreprocessor.startup_timeout=180 --output-dir build/notebooks notebooks/*.ipynb
	@echo "Drawn: build/notebooks/*.html"

benchmark: setup ## measure speed and memory beside the peers
	export PATH="$(CURDIR)/$(BIN):$$PATH"; \
	for benchmark in benchmarks/*.py; do echo "== $$benchmark"; python $$benchmark || exit 1; done

LOCK := --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	--no-emit-find-links --upgrade

MEASURE := playbooks/roles/forktail_measure/files

lock: setup ## write the locked requirements anew
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras $(LOCK) --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra analysis --extra build $(filter-out --upgrade,$(LOCK)) \
		--constraint requirements.lock --output-file requirements-run.lock
	$(BIN)/uv pip compile playbooks/requirements.in $(LOCK) --output-file playbooks/requirements.lock
	$(BIN)/uv pip compile tests/mutants/requirements.in $(LOCK) --constraint requirements.lock \
		--output-file tests/mutants/requirements.lock
	@# What Ansible installs on hosts: the same versions, without markers, for pip reads these as of the Python it runs on.
	$(BIN)/uv pip compile pyproject.toml $(MEASURE)/requirements.in $(filter-out --universal --python-version 3.11 \
		--upgrade,$(LOCK)) --constraint requirements.lock --python-version 3.11.0 \
		--python-platform x86_64-manylinux_2_28 --output-file $(MEASURE)/requirements.lock

clean: ## remove what was built (results stay)
	rm -rf build $(VENV)

# Of Debian packages those that are missing, which only root can install.
define install
	@mkdir -p $(VENV)
	@missing=$$(for package in $(1); do \
		dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || echo $$package; done); \
	if [ -n "$$missing" ]; then \
		[ "$$(id -u)" = 0 ] || { echo "Debian packages are missing; as root: apt-get install" $$missing; exit 3; }; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	fi
endef

$(VENV)/run-packages: Makefile
	$(call install,$(RUN_PACKAGES))
	@touch $@

$(VENV)/packages: Makefile harness/debian/newer-qemu $(VENV)/run-packages
	$(call install,$(PACKAGES))
	@[ "$$(id -u)" != 0 ] || harness/debian/newer-qemu
	@touch $@

$(VENV)/run-requirements: requirements-run.lock $(VENV)/run-packages
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements-run.lock
	@touch $@

$(VENV)/requirements: requirements.lock $(VENV)/packages $(VENV)/run-requirements
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.lock
	@touch $@

# All that a run on this host and its report need.
$(VENV)/runs: $(VENV)/run-requirements pyproject.toml $(NATIVE) $(MODULES)
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/installed: $(VENV)/runs $(VENV)/requirements
	@touch $@

$(VENV)/ansible/installed: playbooks/requirements.lock $(VENV)/installed
	python3 -m venv $(VENV)/ansible
	$(VENV)/ansible/bin/pip install --quiet --require-hashes --requirement playbooks/requirements.lock
	@touch $@

$(VENV)/mutants/installed: tests/mutants/requirements.lock $(VENV)/installed
	rm -rf $(VENV)/mutants
	$(BIN)/pip install --quiet --require-hashes --target $(VENV)/mutants --requirement tests/mutants/requirements.lock
	@touch $@
