# Thin on purpose: each target is a command of tools/set_up.py, which also runs without make:
#     python3 -m tools.set_up lab
# Words to add:  TORCH=cpu|cuda|site   PYTHON=/path/to/python3.12   ARGS="--port 9000"
#                WHEELS=DIR            install from this folder, without a network
#                SHARED=DIR            use the packages of this environment, which is only read

# The first suitable Python; python3 before others, because `module load` or conda put it there.
FITS = import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(or $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(FITS)' 2>/dev/null && echo $$python && break; done),python3)

# chromium: tests/browser runs notebooks in a real page, and a bare machine has no fonts for it
# bubblewrap: the sandbox of ddp-workbook grade
# slurm, munge, iproute2: tests/clusters starts Slurm on simulated hosts; shellcheck: job_scripts
DEBIAN = chromium fonts-dejavu-core bubblewrap \
	slurmctld slurmd slurm-client munge slurm-wlm-torque iproute2 shellcheck

.PHONY: help lab setup test test-push test-all check book figures benchmark gpu lint system-packages

help:
	@echo "make lab              set everything up, then open JupyterLab on the first notebook"
	@echo "make test             set everything up, then run what proves the workbook, in eight minutes"
	@echo "make test-push        what a push needs besides: further pages, browser, Slurm, in thirty minutes"
	@echo "make test-all         the rest as well: each wrong answer at each size, mutants; hours"
	@echo "make check            lint, types, and the tests that the changed files need, in two minutes"
	@echo "make setup            the environment alone, in .venv"
	@echo "make book             execute every notebook and build the site to read, in build/book"
	@echo "make figures          draw every picture under figs/ anew, from recorded data"
	@echo "make benchmark        the measured ratios of this machine"
	@echo "make gpu              all that one NVIDIA GPU can show, recorded in data/gpu, in ten minutes"
	@echo "make lint             formatting, lint, types, notebooks without outputs; fixes what it can"
	@echo "make system-packages  Debian packages that some tests need, and no notebook"

lab setup test test-push test-all check book figures benchmark gpu lint:
	@"$(PYTHON)" -m tools.set_up $@ $(ARGS)

system-packages:
	@command -v apt-get >/dev/null || { echo "This is for Debian and Ubuntu. Elsewhere, install \
	Chromium, bubblewrap, Slurm, munge and shellcheck with your own package manager: the tests that need them are \
	left out otherwise."; exit 1; }
	@[ "$$(dpkg-query -W -f '$${db:Status-Status} ' $(DEBIAN) 2>/dev/null)" = \
	"$(patsubst %,installed,$(DEBIAN)) " ] || { apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	apt-get -qq install -y --no-install-recommends $(DEBIAN); } \
	|| { echo "Run make system-packages as root: sudo make system-packages"; exit 1; }
