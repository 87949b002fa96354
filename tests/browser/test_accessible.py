"""Every panel by axe-core, in both themes, as it starts and with a bad value; and what axe does not look at."""
from importlib.resources import files

import pytest
from playwright.sync_api import expect

from .walk import NOTEBOOKS, PLACES, in_theme, panels_of

pytestmark = pytest.mark.browser
AXE = str(files("axe_playwright_python") / "axe.min.js")
# The controls; in a notebook without one, what its cells show.
VIOLATIONS = """async () => (await axe.run({ include: [[document.querySelector(".jp-Notebook .kv-card") ? ".jp-Notebook .kv-card"
                                                  : ".jp-Notebook .jp-OutputArea-output"]] })).violations
    .map(({ id, impact, nodes }) => [id, impact, nodes.length, nodes.slice(0, 3).map(node => node.target.join(" ") + ": " + node.failureSummary)])"""

# axe does not look into pictures. Of each word in one: what it stands on at its left, middle and right, and the contrast there.
UNREADABLE = """() => {
  const ink = (color) => {                       // [red, green, blue, opacity] of any CSS color
    const part = color.match(/[\\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    return part.length < 4 ? [...part.slice(0, 3), 1] : part;
  };
  const over = (top, below) => below.map((value, i) => top[i] * top[3] + value * (1 - top[3]));
  const light = (color) => color.slice(0, 3).map(value => value / 255)
    .map(value => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [low, high] = [light(a), light(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
  const opacity = (node) => { let all = 1; for (; node && node.tagName !== "svg"; node = node.parentNode) all *= getComputedStyle(node).opacity; return all; };
  const fill = (node) => {
    const style = getComputedStyle(node), [red, green, blue, alpha] = style.fill === "none" ? [0, 0, 0, 0] : ink(style.fill);
    return [red, green, blue, alpha * style.fillOpacity * opacity(node)];
  };
  const page = (node) => {                       // the first of the elements behind it that has a color
    for (; node; node = node.parentElement) { const color = ink(getComputedStyle(node).backgroundColor); if (color[3] > 0) return color; }
    return [255, 255, 255, 1];
  };
  const covers = (shape, x, y) => {
    const frame = shape.getScreenCTM();
    return frame && shape.isPointInFill(new DOMPoint(x, y).matrixTransform(frame.inverse()));
  };
  const found = [];
  let words = 0;
  for (const svg of document.querySelectorAll(".jp-Notebook .kv-drawing svg")) {
    const shapes = [...svg.querySelectorAll("path, rect, circle")].map(node => [node, fill(node)]).filter(([, color]) => color[3] > 0);
    for (const text of svg.querySelectorAll("text")) {
      const color = fill(text), { left, right, top, bottom, width } = text.getBoundingClientRect();
      if (!width || !color[3] || !text.textContent.trim()) continue;
      words += 1;
      for (const x of [left + 1, (left + right) / 2, right - 1]) {
        const below = shapes.filter(([node]) => node.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)
          .filter(([node]) => covers(node, x, (top + bottom) / 2)).reduce((under, [, each]) => over(each, under), page(svg));
        const ratio = contrast(over(color, below), below);
        if (ratio < 4.5) { found.push(`${text.textContent}: ${ratio.toFixed(2)}`); break; }
      }
    }
  }
  return [words, found];
}"""


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
    words, found = book.page.evaluate(UNREADABLE)
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
