# Thin on purpose: each target is a command of tools/set_up.py, which also runs without make:
#     python3 -m tools.set_up lab
# Words to add:  TORCH=cpu|cuda|site   PYTHON=/path/to/python3.12   ARGS="--port 9000"
SET_UP = @sh tools/python.sh -m tools.set_up

.PHONY: help lab setup test book benchmark lint system-packages

help:
	@echo "make lab              set everything up, then open JupyterLab on the first notebook"
	@echo "make test             set everything up, then run all tests"
	@echo "make setup            the environment alone, in .venv"
	@echo "make book             execute every notebook and build the HTML to read, in build/book"
	@echo "make benchmark        the measured ratios of this machine"
	@echo "make lint             formatting, lint, notebooks without outputs"
	@echo "make system-packages  Debian packages that some tests need"

lab setup test book benchmark lint:
	$(SET_UP) $@ $(ARGS)

system-packages:
	@sh tools/system_packages.sh
