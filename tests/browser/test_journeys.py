"""Journeys of a reader through the workbook, in a real browser with the network refused."""
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from .lab import open_notebook, walled

pytestmark = pytest.mark.journey

SLIDER_AND_BOX = """\
import ipywidgets
slider = ipywidgets.IntSlider(description="tokens", value=3, max=9)
box = ipywidgets.IntText(description="box")
ipywidgets.link((slider, "value"), (box, "value"))
ipywidgets.VBox([slider, box])"""


def test_a_notebook_runs_and_nothing_leaves_the_machine(lab, page):
    name = lab.write_notebook("smoke.ipynb", ["#md # A small notebook", "import kvlib\nprint('kvlib says', 6 * 7)", SLIDER_AND_BOX])
    notebook = open_notebook(page, lab, name)
    notebook.run_all()
    assert notebook.errors() == []
    assert notebook.output(1).inner_text().strip() == "kvlib says 42"

    handle = notebook.output(2).locator(".noUi-handle")
    handle.focus()
    page.keyboard.press("ArrowRight")
    notebook.add_and_run("assert (slider.value, box.value) == (4, 4)")
    assert notebook.errors() == []
    assert page.get_by_text("Would you like to get notified about official Jupyter news").count() == 0


def test_what_goes_wrong_is_seen(lab, page):
    name = lab.write_notebook("wrong.ipynb", [
        "import ipywidgets\nout = ipywidgets.Output()\nwith out:\n    1 / 0\nout",
        "raise ValueError('meant to fail')",
    ])
    notebook = open_notebook(page, lab, name)
    notebook.run_all()
    text = "\n".join(notebook.errors())
    assert "ZeroDivisionError" in text
    assert "ValueError: meant to fail" in text


def test_a_request_to_outside_is_refused_and_counted(lab, page):
    page.goto("about:blank")
    for url in ("http://example.org/x.js", "http://192.0.2.1/"):
        assert page.evaluate("url => fetch(url, {mode: 'no-cors'}).then(() => 'answered', () => 'refused')", url) == "refused"
        assert page.outside.pop() == url

    code = "import urllib.request\nurllib.request.urlopen('http://192.0.2.1/', timeout=5)"
    log = lab.folder / "try.log"
    tried = subprocess.run([sys.executable, "-c", code], env=walled(os.environ, log), capture_output=True, text=True, check=False)
    assert "let no connection out: 192.0.2.1" in tried.stderr
    assert log.read_text().split() == ["socket.getaddrinfo", "192.0.2.1"]


def test_the_server_wants_its_token(lab):
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(lab.url + "/api/sessions", timeout=30)
