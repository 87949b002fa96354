"""Fixtures of the browser tests: `lab` (one server a session), `page` (guarded; a test fails if anything left the machine)."""
import contextlib

import pytest

import run

from .lab import CONTEXT, guarded_page, open_notebook, running_browser, running_lab

SLOW_START = "[anywidget] Failed to initialize model."  # said under heavy load; the panels go on all the same


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("journey") or item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.xdist_group("browser"))  # one worker, so one server and one browser
    # Tests of one notebook stand together, at the end, so that it is opened once; the others end all kernels when they are done.
    shelved = [item for item in items if "book" in getattr(item, "fixturenames", ())]
    others = [item for item in items if item not in set(shelved)]
    items[:] = others + sorted(shelved, key=lambda item: item.callspec.params["name"])


@pytest.fixture(scope="session")
def browser_program():
    program = run.find_browser()
    if program is None:
        words = "no browser for the browser tests: " + run.HOW_TO_GET_BROWSER
        pytest.fail(words) if run.on_ci() else pytest.skip(words)
    return program


@pytest.fixture(scope="session")
def browser(browser_program):
    with running_browser(browser_program) as browser:
        yield browser


@pytest.fixture(scope="session")
def context(browser):
    """One for all pages, so that Lab is fetched once; each test has a workspace and a kernel of its own."""
    with browser.new_context(**CONTEXT) as context:
        yield context


@pytest.fixture(scope="session")
def lab(browser_program, tmp_path_factory):
    with running_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


class Shelf:
    """Opens a notebook, runs it, and keeps it open until another is asked for."""

    def __init__(self, context, lab):
        self.context, self.lab = context, lab
        self.notebook, self.stack = None, contextlib.ExitStack()

    def open(self, name):
        if self.notebook is None or not self.notebook.path.endswith(name):
            self.close()
            page = self.stack.enter_context(guarded_page(self.context))
            self.notebook = open_notebook(page, self.lab, name)
            self.notebook.run_all()
        return self.notebook

    def close(self):
        self.stack.close()
        self.notebook = None
        self.lab.end_kernels()


@pytest.fixture(scope="session")
def shelf(context, lab):
    shelf = Shelf(context, lab)
    yield shelf
    shelf.close()


@pytest.fixture
def book(shelf, lab, name):
    """The notebook `name`, run; nothing may have gone wrong on its page, nor left the machine, when a test ends."""
    already = len(lab.connections_out())
    notebook = shelf.open(name)
    page = notebook.page
    yield notebook
    wrong = {"cells": notebook.errors(), "outside": page.outside, "connections": lab.connections_out()[already:],
             "scripts": [error for error in page.script_errors if SLOW_START not in error],
             "console": [error for error in page.console_errors if SLOW_START not in error]}
    assert not any(wrong.values()), wrong


@pytest.fixture
def page(context, lab):
    already = len(lab.connections_out())
    with guarded_page(context) as page:
        yield page
        assert page.outside == [], "the page asked for something outside this machine"
        failed = [error for error in page.script_errors if SLOW_START not in error]
        assert failed == [], "a script on the page failed"
    lab.end_kernels()
    assert lab.connections_out()[already:] == [], "the server or a kernel tried to leave this machine"
