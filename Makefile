# Thin names over run.py, which does the work: `make lab` is `python run.py lab`.
PYTHON ?= $(shell command -v python3 || command -v python)

.PHONY: help lab test check store site
help:
	@"$(PYTHON)" run.py help

lab test check store site:
	"$(PYTHON)" run.py $@ $(ARGS)
