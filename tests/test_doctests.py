"""The examples in the docstrings print what stands there."""
import doctest
import importlib
import pkgutil

import pytest

import kvlib

MODULES = sorted(found.name for found in pkgutil.walk_packages(kvlib.__path__, "kvlib."))


@pytest.mark.parametrize("name", ["kvlib", *MODULES])
def test_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(bool(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name))) > 60
