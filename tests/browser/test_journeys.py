"""Journeys of a reader through the workbook, in a real browser with the network refused."""
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import expect

import kvlib
import run

from .conftest import SLOW_START
from .lab import guarded_page, open_notebook, walled

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


# ---- the first notebook, as a reader meets it --------------------------------------------------------------------------

expect.set_options(timeout=20_000)  # a machine that runs two workers may take its time
START = "00_start_here.ipynb"
LABEL = "Longest request"
STRIPS = "svg.marks [aria-roledescription='rect mark']"


def answer_of_kvlib(length):
    """What the panel must say, asked of kvlib directly: the GB10's pool under another `max_model_len`."""
    model = kvlib.load_model("Qwen3-8B")
    engine = kvlib.Engine(vllm_version="0.28", max_model_len=length)
    return kvlib.size(model, engine, available_bytes=42_600 * 16 * kvlib.bytes_per_token(model, engine))


class FirstPanel:
    """The panel of 00 as its reader has it: slider, box, sentence, picture, tables."""

    def __init__(self, output):
        self.card = output.locator(".kv-card").first
        self.slider = self.card.get_by_role("slider", name=LABEL)
        self.box = self.card.get_by_role("textbox", name=LABEL, exact=True)
        self.sentence = self.card.get_by_role("status").and_(self.card.locator(".kv-answer"))
        self.problem = self.card.get_by_role("alert")
        self.picture = self.card.get_by_role("img")

    def table(self, heading):
        return self.card.get_by_role("table").filter(has=self.card.page.get_by_role("columnheader", name=heading))

    def type(self, text):
        self.box.fill(text)
        self.box.press("Enter")

    def shows(self, length, typed=None):
        """Control, sentence, both tables and the strips of the picture say what kvlib says of this length."""
        typed = typed or f"{length:,}"
        found = answer_of_kvlib(length)
        full = f"{found.max_concurrency:.2f}"
        expect(self.box).to_have_value(typed)
        expect(self.slider).to_have_attribute("aria-valuetext", f"{typed} tokens")
        expect(self.sentence).to_contain_text(f"{full} requests")
        expect(self.sentence).to_contain_text(f"{length:,} tokens")
        expect(self.table("The line in the log")).to_contain_text(found.log_lines()[-1])
        first = self.table("Fit at once").get_by_role("row").nth(1)
        for figure in (f"{length:,}", f"{found.blocks_per_request:,}", full):
            expect(first.get_by_text(figure, exact=True)).to_be_visible()
        expect(self.picture).to_have_attribute("aria-label", re.compile(f"{re.escape(full)} requests of {length:,} tokens"))
        drawn = self.picture.locator(f"{STRIPS}[aria-label$=' of {length:,} tokens']")
        wanted = list(range(1, int(found.max_concurrency) + 1))
        assert soon(lambda: numbers(drawn), wanted) == wanted
        expect(self.problem).to_have_text("")
        expect(self.card.locator(".kv-stale")).to_have_count(0)


def numbers(strips):
    """The requests that strips belong to: "request 3 of 8,192 tokens" is number 3; one may have two strips."""
    labels = strips.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    return sorted({int(label.split()[1]) for label in labels})


def soon(look, wanted, seconds=20):
    """What `look` gives once it is what is wanted, or at the end of its patience: a picture is drawn after the words."""
    end = time.monotonic() + seconds
    while (found := look()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return found


def cell_number(notebook, cell_id):
    cells = json.loads((run.ROOT / "notebooks" / notebook).read_text(encoding="utf-8"))["cells"]
    return next(number for number, cell in enumerate(cells) if cell["id"] == cell_id)


@pytest.fixture(scope="module")
def opened(context, lab):
    """00 opened and run once for the three journeys: starting a kernel and drawing the page is what takes time."""
    with guarded_page(context) as page:
        notebook = open_notebook(page, lab, START)
        notebook.run_all()
        assert notebook.errors() == []
        yield notebook
    lab.end_kernels()


@pytest.fixture
def start_here(opened, lab):
    """The notebook and the panel under its cell, as it starts. Nothing may leave the machine, nor fail on the page."""
    already = len(lab.connections_out())
    panel = FirstPanel(opened.output(cell_number(START, "first-line")))
    panel.card.get_by_role("button", name="Reset").click()
    panel.shows(40_960)
    yield opened, panel
    assert opened.errors() == []
    assert opened.page.outside == [], "the page asked for something outside this machine"
    assert lab.connections_out()[already:] == [], "the server or a kernel tried to leave this machine"
    assert [error for error in opened.page.script_errors if SLOW_START not in error] == [], "a script on the page failed"


def test_the_first_screen_runs_and_follows_the_keyboard(start_here):
    notebook, panel = start_here
    expect(notebook.output(cell_number(START, "setup"))).to_contain_text("Ready")
    expect(panel.card).to_contain_text("The same to the last digit.")
    panel.slider.focus()
    for length in (32_768, 16_384, 8_192):
        notebook.page.keyboard.press("ArrowLeft")
        panel.shows(length)
    expect(panel.card).not_to_contain_text("The same to the last digit.")
    panel.type("5000")
    panel.shows(5_000, typed="5000")


def test_the_panel_shown_twice_is_right_in_both_places(start_here):
    notebook, first = start_here
    first.slider.focus()
    notebook.page.keyboard.press("Home")
    first.shows(1_024)
    second = FirstPanel(notebook.output(notebook.add_and_run("FirstLine()")))
    for panel in (second, first):
        panel.shows(1_024)
    second.slider.focus()
    notebook.page.keyboard.press("ArrowRight")
    for panel in (second, first):
        panel.shows(2_048)
    first.slider.focus()
    notebook.page.keyboard.press("End")
    for panel in (first, second):
        panel.shows(131_072)
    expect(second.sentence).to_contain_text("vLLM refuses 131,072 tokens")


def test_a_bad_value_is_one_red_sentence_and_nothing_is_lost(start_here):
    _, panel = start_here
    panel.type("8192")
    panel.shows(8_192, typed="8192")
    panel.type("200000")
    expect(panel.problem).to_have_text("Longest request: found 200000, expected a whole number from 1,024 to 131,072 tokens.")
    expect(panel.box).to_have_value("200000")
    expect(panel.box).to_have_attribute("aria-invalid", "true")
    expect(panel.picture).to_have_class(re.compile("kv-stale"))
    assert numbers(panel.picture.locator(f"{STRIPS}[aria-label$=' of 8,192 tokens']"))[-1] == 83, "the last picture stays"
    panel.type("16K")
    panel.shows(16_384, typed="16K")
    expect(panel.box).to_have_attribute("aria-invalid", "false")
