"""Every panel by axe-core, in both themes, as it starts and with a bad value; and what axe does not look at."""
from importlib.resources import files

import pytest
from playwright.sync_api import expect

from .contrast import unreadable
from .walk import NOTEBOOKS, PLACES, in_theme, panels_of

pytestmark = pytest.mark.browser
AXE = str(files("axe_playwright_python") / "axe.min.js")
# The controls; in a notebook without one, what its cells show.
VIOLATIONS = """async () => (await axe.run({ include: [[document.querySelector(".jp-Notebook .kv-card") ? ".jp-Notebook .kv-card"
                                                  : ".jp-Notebook .jp-OutputArea-output"]] })).violations
    .map(({ id, impact, nodes }) => [id, impact, nodes.length, nodes.slice(0, 3).map(node => node.target.join(" ") + ": " + node.failureSummary)])"""


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_axe_finds_nothing_serious(book, theme, name):
    page = book.page
    in_theme(page, theme)
    page.evaluate("() => document.querySelectorAll('.kv-foot details').forEach(node => { node.open = true; })")
    cards = page.locator(".jp-Notebook .kv-card:has(.kv-field .kv-box input)")
    if cards.count():     # one panel with a red sentence
        box = cards.first.locator(".kv-field .kv-box input").first
        box.fill("abc")
        box.press("Enter")
        expect(cards.first.get_by_role("alert")).not_to_be_empty()
    if not page.evaluate("() => Boolean(window.axe)"):
        page.add_script_tag(path=AXE)
    found = page.evaluate(VIOLATIONS)
    print(name, theme, [(rule, impact, count) for rule, impact, count, _ in found] or "nothing")
    assert [each for each in found if each[1] in ("serious", "critical")] == []


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if panels_of(name)])
def test_the_words_of_pictures_stand_out(book, theme, name):
    in_theme(book.page, theme)
    words, found = unreadable(book.page.locator(".jp-Notebook"))
    print(name, theme, words, "words")
    assert found == []
    assert words > 0


@pytest.mark.parametrize("name, place", [(place.notebook, place) for place in PLACES], ids=map(str, PLACES))
def test_names_units_ranges_descriptions_and_tables(book, place):
    card, panel = book.output(place.cell).locator(".kv-card").first, place.twin()
    for field in panel.inputs:
        if field.kind == "number":
            box = card.get_by_role("textbox", name=field.label, exact=True)
            expect(box).to_have_accessible_description(after_the_name(field))
            expect(card.get_by_role("slider", name=field.label + ", slider", exact=True)).to_have_count(1 if field.slider else 0)
    for picture in card.get_by_role("img").all():
        words = picture.get_attribute("aria-label")
        assert any(letter.isdigit() for letter in words), f"the picture's description states no figure: {words!r}"
    for table in card.locator("table:visible").all():
        assert table.locator("th").count() > 0


def after_the_name(field):
    """The flag and the range, which a reader of a screen hears after the name."""
    return " ".join(text for text in (field.flag, field.range_text()) if text)


@pytest.mark.parametrize("name", [panels_of(NOTEBOOKS[1])[0].notebook])
def test_focus_is_seen(book, name):
    place = panels_of(name)[0]
    card = book.output(place.cell).locator(".kv-card").first
    card.get_by_role("button", name="Reset").focus()
    book.page.keyboard.press("Shift+Tab")
    for _ in range(4):
        book.page.keyboard.press("Shift+Tab")
        style = book.page.evaluate("() => { const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]; }")
        assert style[0] != "none" and float(style[1][:-2]) >= 2, style
