# Thin names over run.py, which does the work: `make lab` is `python run.py lab`.
PYTHON ?= $(shell command -v python3 || command -v python)

.PHONY: help lab test test-browser check store bench site fresh learner bundle
help:
	@"$(PYTHON)" run.py help

lab test test-browser check store bench site fresh learner bundle:
	"$(PYTHON)" run.py $@ $(ARGS)
