"""Fixtures of the browser tests: `lab` (one server a session), `page` (guarded; a test fails if anything left the machine)."""
import pytest

import run

from .lab import CONTEXT, guarded_page, running_browser, running_lab

SLOW_START = "[anywidget] Failed to initialize model."  # said under heavy load; the panels go on all the same


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("journey") or item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.xdist_group("browser"))  # one worker, so one server and one browser


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
