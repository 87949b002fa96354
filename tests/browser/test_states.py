"""Panels in the states a room brings: shown twice, wrong, hidden, reloaded, restarted, narrow, zoomed, dark, still."""
import contextlib
import re

import pytest
from playwright.sync_api import expect

from .lab import CURRENT, guarded_page, open_notebook
from .walk import NOTEBOOKS, PLACES, Seen, in_theme, move_by_keyboard, move_by_mouse, panels_of

pytestmark = pytest.mark.browser
EACH_PLACE = pytest.mark.parametrize("name, place", [(place.notebook, place) for place in PLACES], ids=map(str, PLACES))
SPLIT = next(place for place in PLACES if place.kind == "SplitModel")


def card_of(notebook, cell):
    return notebook.output(cell).locator(".kv-card").first


def first_input(panel):
    """The first input that one moves, rather than types into."""
    return next((field for field in panel.inputs if field.kind != "text"), panel.inputs[0])


# ---- every panel -----------------------------------------------------------------------------------------------------------

@EACH_PLACE
def test_a_bad_value_is_red_and_grey_and_forgiven(book, place):
    seen = Seen(card_of(book, place.cell), place.twin())
    seen.settle()
    numbers = [field for field in seen.twin.inputs if field.kind == "number"]
    for field in numbers[:2]:
        good = seen.twin.raw[field.name]
        box = seen.box(field)
        for text in ("abc", ""):
            box.fill(text)
            box.press("Enter")
            seen.tell(field.name, text)
            assert seen.twin.error.startswith(f"{field.label}: found {text or 'nothing'}, expected ")
            seen.agrees()
            expect(seen.card.get_by_role("alert")).to_be_visible()
            expect(box).to_have_attribute("aria-invalid", "true")
            expect(seen.answer).to_be_hidden()
        box.fill(good)
        box.press("Enter")
        seen.tell(field.name, good)
        seen.agrees()
        expect(box).to_have_attribute("aria-invalid", "false")
    assert numbers or {field.kind for field in seen.twin.inputs} <= {"choice", "toggle", "text", "rows"}


@EACH_PLACE
def test_shown_twice_both_stay_in_step(book, place):
    seen = Seen(card_of(book, place.cell), place.twin())
    seen.settle()
    second = Seen(card_of(book, book.add_and_run(f"{place.kind}()")), seen.twin)
    field = first_input(seen.twin)
    for here, there, move in ((second, seen, move_by_mouse), (seen, second, move_by_keyboard)):
        move(here, field)
        there.agrees(drawn=False)
    second.settle()
    seen.agrees(drawn=False)


# ---- the page ----------------------------------------------------------------------------------------------------------------

# What sticks out of its card, or is cut off in its picture, or has to be scrolled; [] when nothing does.
CUT = """scroll => [...document.querySelectorAll(".jp-Notebook .kv-card")].flatMap(card => {
  const found = [], edge = card.getBoundingClientRect();
  if (!edge.width) return found;
  const name = card.querySelector(".kv-title").textContent;
  if (card.scrollWidth > card.clientWidth) found.push(`${name}: wider than its place by ${card.scrollWidth - card.clientWidth}`);
  for (const node of card.querySelectorAll("input, select, button, textarea, label, .kv-answer, .kv-picture svg")) {
    const box = node.getBoundingClientRect();
    const inner = node.closest(".kv-below, .kv-foot details");
    if (box.width && !inner && (box.right > edge.right + 1 || box.left < edge.left - 1)) found.push(`${name}: ${node.tagName} sticks out`);
  }
  for (const svg of card.querySelectorAll(".kv-picture svg")) {
    const frame = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.width && text.textContent.trim() && +getComputedStyle(text).opacity > 0 && (box.right > frame.right + 1.5 || box.left < frame.left - 1.5
          || box.bottom > frame.bottom + 3 || box.top < frame.top - 3))
        found.push(`${name}: "${text.textContent}" is cut off`);
    }
  }
  if (scroll) for (const node of card.querySelectorAll("*"))
    if (/auto|scroll/.test(getComputedStyle(node).overflowX) && node.tagName !== "TEXTAREA" && node.scrollWidth > node.clientWidth + 1)
      found.push(`${name}: ${node.className} scrolls by ${node.scrollWidth - node.clientWidth}`);
  return found;
})"""


# Twice the same: the pictures have taken the page's width.
AT_REST = """() => {
  const now = JSON.stringify([innerWidth, ...[...document.querySelectorAll(".kv-picture svg")].map(svg => [svg.getAttribute("width"), svg.clientWidth])]);
  const same = now === window.kvWas;
  window.kvWas = now;
  return same;
}"""


@contextlib.contextmanager
def of_width(page, width):
    """The page as narrow as that, once its pictures have taken their width."""
    if width < 1280:
        page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.set_viewport_size({"width": width, "height": 1000})
    try:
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        for svg in page.locator(".jp-Notebook .kv-card .kv-picture").all():
            expect(svg.locator("svg.marks")).to_be_attached()
        page.wait_for_function(AT_REST, polling=700)
        yield
    finally:
        page.set_viewport_size({"width": 1280, "height": 1000})


# 640 pixels are what a page of 1280 has at 200 % zoom.
@pytest.mark.parametrize("width", [1280, 640, 390])
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_nothing_is_cut_off(book, width):
    with of_width(book.page, width):
        found = book.page.evaluate(CUT, width == 1280)
        assert not found, "\n".join(found)


# Words of a picture that lie on one another.
MEET = """() => [...document.querySelectorAll(".jp-Notebook .kv-card .kv-picture svg.marks")].flatMap(svg => {
  const name = svg.closest(".kv-card").querySelector(".kv-title").textContent, found = [];
  const words = [...svg.querySelectorAll("text")].filter(text => text.getAttribute("opacity") !== "0" && text.getBoundingClientRect().width)
    .map(text => [text.textContent, text.getBoundingClientRect()]);
  words.forEach(([text, a], i) => words.slice(i + 1).forEach(([other, b]) => {
    const scale = svg.clientWidth / svg.viewBox.baseVal.width || 1;
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3 * scale && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5 * scale)
      found.push(`${name}: "${text}" and "${other}"`);
  }));
  return found;
})"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_words_lie_on_one_another(book, width):
    with of_width(book.page, width):
        assert book.page.evaluate(MEET) == []


@pytest.mark.parametrize("name", [SPLIT.notebook])
def test_a_reader_who_wants_no_motion_gets_none(book):
    page = book.page
    lasting = """() => [...document.querySelectorAll(".kv-card, .kv-card *")].filter(node => {
      const style = getComputedStyle(node);
      return style.transitionDuration.split(", ").some(text => parseFloat(text) > 0) || style.animationName !== "none";
    }).map(node => node.className)"""
    page.emulate_media(reduced_motion="reduce")
    try:
        assert page.evaluate(lasting) == []
    finally:
        page.emulate_media(reduced_motion="no-preference")


@pytest.mark.parametrize("name", [SPLIT.notebook])
def test_behind_another_tab_it_follows_and_is_right_on_return(book):
    page = book.page
    seen = Seen(card_of(book, SPLIT.cell), SPLIT.twin())
    seen.settle()
    field = seen.twin._inputs["tensor_parallel_size"]
    page.evaluate(f"() => {{ window.kvBook = {CURRENT}; }}")
    page.evaluate("() => { window.jupyterapp.commands.execute('launcher:create'); }")
    expect(seen.card).to_be_hidden()
    done = page.evaluate("""async code => (await window.kvBook.context.sessionContext.session.kernel
        .requestExecute({code}).done).content.status""", f"SplitModel().set({field.name}=2)")
    assert done == "ok"
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.close(); window.jupyterapp.shell.activateById(window.kvBook.id); }")
    expect(seen.card).to_be_visible()
    seen.tell(field.name, "2")
    seen.agrees()
    move_by_mouse(seen, field)
    seen.settle()


@pytest.mark.parametrize("name", [SPLIT.notebook])
def test_a_picture_is_readable_in_both_themes(book):
    try:
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            in_theme(book.page, theme)
            for place in panels_of(SPLIT.notebook):
                card = card_of(book, place.cell)
                ink = card.locator("svg .role-axis-label text, svg .role-axis-title text").first
                colours = [ink.evaluate("e => getComputedStyle(e).fill"), card.evaluate("e => getComputedStyle(e).backgroundColor")]
                assert contrast(*colours) > 7, (place.kind, theme, colours)
    finally:
        in_theme(book.page, "JupyterLab Light")


def contrast(*colours):
    def light(colour):
        parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
        parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    dark, bright = sorted(map(light, colours))
    return (bright + 0.05) / (dark + 0.05)


# ---- the kernel and the page go away and come back --------------------------------------------------------------------------

RESTART = f"() => {CURRENT}.context.sessionContext.session.kernel.restart()"


@pytest.mark.parametrize("notebook", ["01_bytes_per_token.ipynb", "06_size_your_own.ipynb"])
def test_after_a_kernel_restart_run_all_brings_it_back(lab, page, notebook):
    place = panels_of(notebook)[0]
    opened = open_notebook(page, lab, notebook)
    opened.run_all()
    seen = Seen(card_of(opened, place.cell), place.twin())
    move_by_keyboard(seen, first_input(seen.twin))
    page.evaluate(RESTART)
    opened.wait_idle()
    opened.run_all()
    assert opened.errors() == []
    again = Seen(card_of(opened, place.cell), place.twin())
    again.agrees()
    move_by_keyboard(again, first_input(again.twin))


def test_after_a_reload_the_newest_state_is_there(lab, page):
    opened = open_notebook(page, lab, SPLIT.notebook)
    opened.run_all()
    seen = Seen(card_of(opened, SPLIT.cell), SPLIT.twin())
    move_by_mouse(seen, seen.twin._inputs["max_model_len"])
    opened.save_and_reload(seen.twin.title)
    again = Seen(card_of(opened, SPLIT.cell), seen.twin)
    again.agrees()
    move_by_keyboard(again, again.twin._inputs["max_model_len"])


def test_two_notebooks_at_once(context, lab, page):
    places = [SPLIT, panels_of("01_bytes_per_token.ipynb")[0]]
    with guarded_page(context) as other:
        both = []
        for view, place in zip((page, other), places, strict=True):
            opened = open_notebook(view, lab, place.notebook)
            opened.run_all()
            assert opened.errors() == []
            both.append(Seen(card_of(opened, place.cell), place.twin()))
        for move in (move_by_mouse, move_by_keyboard):
            for seen in both:
                seen.page.bring_to_front()
                move(seen, next(field for field in seen.twin.inputs if field.kind == "number"))
            for seen in both:
                seen.agrees(drawn=False)
        assert other.outside == [] and other.script_errors == []
