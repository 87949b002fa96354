"""A panel on the page beside its twin: the same class in this process, told the same, so it must say the same.

    place = panels_of("04_tensor_parallelism.ipynb")[0]
    seen = Seen(notebook.output(place.cell).locator(".kv-card"), place.twin())
    for field in seen.twin.inputs:
        move_by_mouse(seen, field)        # checks sentence, table, pictures and boxes against the twin
        move_by_keyboard(seen, field)
"""
import ast
import functools
import importlib
import json
import re
import time
from html.parser import HTMLParser
from types import SimpleNamespace

from playwright.sync_api import TimeoutError as PlaywrightTimeout
from playwright.sync_api import expect

import run

from .contrast import DARK, unreadable

expect.set_options(timeout=20_000)  # a busy machine may take its time
NOTEBOOKS = sorted(path.name for path in (run.ROOT / "notebooks").glob("*.ipynb"))


# ---- which panels a notebook shows ---------------------------------------------------------------------------------------

class Place(SimpleNamespace):
    """A panel in a notebook: `notebook`, `cell` (its number), `cell_id`, `kind` (the class's name), `module`."""

    def __str__(self):
        return f"{self.notebook[:2]}-{self.kind}"

    def twin(self):
        """The panel itself, fresh, in this process."""
        from kvlib import controls
        kind = getattr(importlib.import_module(self.module), self.kind)
        controls.forget(kind.name)
        return kind()


@functools.cache
def panels_of(notebook):
    """The panels that stand as the last line of a cell, read off the file without running it."""
    found, came_from = [], {}
    cells = json.loads((run.ROOT / "notebooks" / notebook).read_text(encoding="utf-8"))["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        for node in body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvlib.panels."):
                came_from |= {alias.asname or alias.name: node.module for alias in node.names}
        last = body[-1].value if body and isinstance(body[-1], ast.Expr) else None
        if isinstance(last, ast.Call) and isinstance(last.func, ast.Name) and came_from.get(last.func.id):
            if last.func.id[0].isupper() and not last.args and not last.keywords:
                found.append(Place(notebook=notebook, cell=number, cell_id=cell["id"], kind=last.func.id, module=came_from[last.func.id]))
    return found


PLACES = [place for notebook in NOTEBOOKS for place in panels_of(notebook)]


def in_theme(page, theme):
    """Put Lab into "JupyterLab Dark" or "JupyterLab Light"; not awaited, since Lab's own promise may never come true."""
    page.evaluate("theme => { window.jupyterapp.commands.execute('apputils:change-theme', { theme }); }", theme)
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", "false" if "Dark" in theme else "true", timeout=60_000)


# ---- what is written, as a reader sees it --------------------------------------------------------------------------------

class _Words(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_data(self, data):
        self.found.append(data)


def words(markup):
    """The text of a piece of HTML, as an element's textContent gives it, with single spaces."""
    parser = _Words()
    parser.feed(markup)
    return " ".join("".join(parser.found).split())


MARK = re.compile(r'aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="([^"]*)"')


def drawn_from(spec, rows):
    """The marks of a picture with what each stands for, drawn here by the same Vega: [(kind, label), ...], sorted."""
    import html
    import vl_convert
    from kvlib.live import packed
    from panels import unpacked
    text = vl_convert.vegalite_to_svg(dict(spec) | {"datasets": spec.get("datasets", {}) | unpacked(packed(rows))})
    return sorted((kind, html.unescape(label)) for label, kind in MARK.findall(text) if kind not in ("axis", "legend"))


MARKS_ON_PAGE = """node => [...node.querySelectorAll("svg.marks [role='graphics-symbol'][aria-label]")]
    .map(mark => [mark.getAttribute("aria-roledescription"), mark.getAttribute("aria-label")])
    .filter(([kind]) => !["axis", "legend"].includes(kind))"""


# ---- watching for flicker ------------------------------------------------------------------------------------------------

# A picture that has been drawn may be exchanged in one go, but there is no moment without one.
WATCH = """card => {
  const seen = card.kvSeen = { blank: 0, drawn: new Set() };
  const look = () => {
    for (const picture of card.querySelectorAll(".kv-picture")) {
      if (picture.querySelector("svg")) seen.drawn.add(picture);
      else if (seen.drawn.has(picture)) seen.blank += 1;
    }
    if (!card.querySelector(".kv-answer")) seen.blank += 1;
  };
  look();
  new MutationObserver(look).observe(card, { childList: true, subtree: true });
}"""


SAME_WORDS = """([card, wanted]) => {
  const plain = text => text.replace(/\\s+/g, " ").trim();
  const says = (place, text) => plain(card.querySelector(place).textContent) === text;
  const pictures = [...card.querySelectorAll(".kv-picture")], grey = card.querySelectorAll(".kv-stale").length;
  if (!says(".kv-error", wanted.error)) return false;
  if (wanted.error) return pictures.every(picture => picture.classList.contains("kv-stale"));
  return !grey && says(".kv-answer", wanted.answer) && says(".kv-result", wanted.table) && says(".kv-note", wanted.note)
    && pictures.length === wanted.pictures.length
    && pictures.every((picture, i) => plain(picture.getAttribute("aria-label")) === wanted.pictures[i]);
}"""


# ---- the two side by side ------------------------------------------------------------------------------------------------

class Seen:
    """A panel's card on the page, and `twin`, the panel that it must agree with."""

    def __init__(self, card, twin):
        self.card, self.twin, self.page, self.moved = card, twin, card.page, None
        self.answer = card.locator(".kv-answer")
        self.error = card.locator(".kv-error")
        self.result = card.locator(".kv-result")
        self.note = card.locator(".kv-note")
        self.pictures = card.locator(".kv-picture")
        expect(self.answer).not_to_be_empty()
        for number in range(len(twin._shown()["specs"])):
            expect(self.pictures.nth(number).locator("svg.marks")).to_be_visible()
        card.evaluate(WATCH)

    def tell(self, name, raw):
        """The twin hears what the reader did."""
        self.moved = name
        self.twin._change({name: raw})

    def agrees(self, drawn=True):
        """Sentence, table, small print, pictures and boxes are those of the twin; nothing flickered.

        With `drawn` also every mark of the pictures and every box, else the box that was moved."""
        shown = self.twin._shown()
        self.words_agree(shown)
        for name in self.twin.raw if drawn else filter(None, [self.moved]):
            self.box_agrees(self.twin._inputs[name], self.twin.raw[name])
        if drawn and not shown["error"]:
            self.pictures_agree(shown)
        assert self.card.evaluate("card => card.kvSeen.blank") == 0, "a picture was absent for a moment"

    def words_agree(self, shown):
        """At once, which is quick; and where that fails, one by one, which says what differs."""
        said = shown["descriptions"]
        wanted = {"error": shown["error"], "answer": words(shown["answer"]), "table": words(shown["table"]), "note": words(shown["note"]),
                  "pictures": [" ".join(said[min(number, len(said) - 1)].split()) for number in range(len(shown["specs"]))]}
        try:
            self.page.wait_for_function(SAME_WORDS, arg=[self.card.element_handle(), wanted], timeout=20_000)
        except PlaywrightTimeout:
            expect(self.error).to_have_text(wanted["error"], timeout=1_000)
            if not wanted["error"]:
                for place, key in ((self.answer, "answer"), (self.result, "table"), (self.note, "note")):
                    expect(place).to_have_text(wanted[key], timeout=1_000)
                found = [picture.get_attribute("aria-label") for picture in self.pictures.all()]
                assert found == wanted["pictures"], "the pictures' words"
            raise

    def pictures_agree(self, shown):
        from kvlib.charts import filled
        for number, spec in enumerate(map(filled, shown["specs"], shown["fills"])):
            wanted = drawn_from(spec, shown["rows"])
            picture = self.pictures.nth(number)
            found = soon(lambda: sorted(map(tuple, picture.evaluate(MARKS_ON_PAGE))), wanted)  # noqa: B023
            assert found == wanted, f"picture {number + 1} shows other marks than kvlib's"
            assert picture.locator(".kv-drawing-problem").count() == 0
        for theme, ink_and_ground in (("this theme", None), ("the dark", DARK)):
            _, found = unreadable(self.card, ink_and_ground)
            assert found == [], f"words of a picture are hard to read in {theme}: {found}"

    def box_agrees(self, field, raw):
        kind = field.kind
        if kind == "rows":
            labels = [[self.cell(column, row) for column in field.columns] for row in range(len(raw))]
            for boxes, values in zip(labels, raw, strict=True):
                for box, value in zip(boxes, values, strict=True):
                    expect(box).to_have_value(value)
        elif kind == "toggle":
            expect(self.toggle(field)).to_be_checked(checked=raw in ("on", True))
        elif kind == "choice" and field.style == "buttons":
            expect(self.radio(field, raw)).to_be_checked()
        else:
            expect(self.box(field)).to_have_value(raw)
            if kind == "number" and field.slider:
                expect(self.slider(field)).to_have_attribute("aria-valuetext", f"{raw} {field.unit}".strip())

    def settle(self):
        """Reset, here and in the twin."""
        self.card.get_by_role("button", name="Reset").click()
        self.twin.reset()
        self.moved = None
        self.agrees()

    # the parts of an input, found by role and name

    def box(self, field):
        role = "combobox" if field.kind == "choice" or getattr(field, "suggestions", ()) else "textbox"
        return self.card.get_by_role(role, name=field.label, exact=True)

    def slider(self, field):
        return self.card.get_by_role("slider", name=field.label + ", slider", exact=True)

    def toggle(self, field):
        return self.card.get_by_role("checkbox", name=field.label, exact=True)

    def radios(self, field):
        return self.card.get_by_role("group", name=field.label, exact=True)

    def radio(self, field, shown):
        return self.radios(field).get_by_role("radio", name=shown, exact=True)

    def cell(self, column, row):
        return self.card.get_by_label(f"{column.label}, row {row + 1}", exact=True)


def soon(look, wanted, seconds=20):
    """What `look` gives once it is what is wanted, or at the end of its patience: a picture is drawn after the words."""
    end = time.monotonic() + seconds
    while (found := look()) != wanted and time.monotonic() < end:
        time.sleep(0.03)
    return found


# ---- moving an input -----------------------------------------------------------------------------------------------------

def stops(field):
    """The texts that a slider rests on, from end to end."""
    return [field.text(value) for value in field.every_stop()]


def drag(seen, slider, share):
    """Drag a slider's handle to a share of its way, in the steps of a quick hand."""
    slider.scroll_into_view_if_needed()
    place, mouse = slider.bounding_box(), seen.page.mouse
    last, now = int(slider.get_attribute("max")), int(slider.input_value())
    at = lambda part: place["x"] + 8 + part * (place["width"] - 16)  # noqa: E731
    height = place["y"] + place["height"] / 2
    mouse.move(at(now / last), height)
    mouse.down()
    mouse.move(at(share), height, steps=5)
    mouse.up()


def move_by_mouse(seen, field):
    {"number": _drag_number, "choice": _pick, "toggle": _click_toggle, "text": _fill, "rows": _add_a_row}[field.kind](seen, field)


def move_by_keyboard(seen, field):
    {"number": _arrow_number, "choice": _arrow_choice, "toggle": _space, "text": _type, "rows": _type_in_a_row}[field.kind](seen, field)


def _drag_number(seen, field):
    if not field.slider:
        return _arrow_number(seen, field)
    slider, all_stops = seen.slider(field), stops(field)
    first = int(slider.input_value())
    drag(seen, slider, 0.25 if first > len(all_stops) / 2 else 0.75)
    now = int(slider.input_value())
    assert now != first, f"{field.label}: the handle did not move"
    seen.tell(field.name, all_stops[now])
    seen.agrees()


def _arrow_number(seen, field):
    all_stops = stops(field)
    slider = seen.slider(field)
    slider.focus()
    now = int(slider.input_value())
    for key, then in (("ArrowLeft", max(0, now - 1)), ("ArrowRight", now), ("Home", 0), ("End", len(all_stops) - 1)):
        if all_stops[then] == seen.twin.raw[field.name]:
            continue
        seen.page.keyboard.press(key)
        seen.tell(field.name, all_stops[then])
        seen.agrees(drawn=key in ("Home", "End"))
    box = seen.box(field)
    typed = all_stops[len(all_stops) // 3].replace(",", "")
    box.fill(typed)
    box.press("Enter")
    seen.tell(field.name, typed)
    seen.agrees(drawn=False)


def _other_option(seen, field):
    options = list(field.options)
    return options[(options.index(seen.twin.raw[field.name]) + max(1, len(options) // 2)) % len(options)]


def _pick(seen, field):
    shown = _other_option(seen, field)
    if field.style == "buttons":
        seen.radios(field).get_by_text(shown, exact=True).click()
    else:
        seen.box(field).select_option(shown)
    seen.tell(field.name, shown)
    seen.agrees()


def _arrow_choice(seen, field):
    options = list(field.options)
    now = options.index(seen.twin.raw[field.name])
    key, then = ("ArrowDown", now + 1) if now + 1 < len(options) else ("ArrowUp", now - 1)
    (seen.radio(field, options[now]) if field.style == "buttons" else seen.box(field)).focus()
    seen.page.keyboard.press(key)
    seen.tell(field.name, options[then])
    seen.agrees(drawn=False)


def _click_toggle(seen, field):
    now = seen.twin.raw[field.name] in ("on", True)
    seen.toggle(field).click()
    seen.tell(field.name, "off" if now else "on")
    seen.agrees()


def _space(seen, field):
    now = seen.twin.raw[field.name] in ("on", True)
    seen.toggle(field).focus()
    seen.page.keyboard.press("Space")
    seen.tell(field.name, "off" if now else "on")
    seen.agrees(drawn=False)


def log_text(name):
    return (run.ROOT / "data" / "logs" / (name + ".log")).read_text(encoding="utf-8")


def model_file(name):
    return (run.ROOT / "data" / "models" / (name + ".json")).read_text(encoding="utf-8")


# Two texts for each free box: one for the mouse, one for the keyboard. A box that is not listed fails the suite.
TEXTS = {
    ("05-read-log", "launch"): ("1", "last"),
    ("05-read-log", "path"): (str(run.ROOT / "data/logs/qwen3-8b-gb10.log"), "/nowhere.log"),
    ("05-read-log", "text"): (log_text("qwen3-8b-gb10"), "nothing of vLLM"),
    ("09-mix", "rows"): ("prompt_tokens,output_tokens\n500,100\n900,200\n", "prompt_tokens,output_tokens\n500,ten\n"),
    ("09-traffic", "rows"): ("prompt_tokens,output_tokens\n500,100\n900,200\n", "prompt_tokens,output_tokens\n500,ten\n"),
    ("05-read-log", "config"): (model_file("Qwen3-8B"), "{"),
    ("06-size-your-own", "config"): ("Qwen3-8B", "no such model"),
    ("06-size-your-own", "command"): ("vllm serve Qwen/Qwen3-8B --max-model-len 8192 --kv-cache-dtype fp8", "vllm serve Qwen/Qwen3-8B --max-num-seqs 64"),
    ("06-size-your-own", "log"): ("Model loading took 14.99 GiB memory and 41.2 seconds", "nothing of vLLM"),
}
GIB_TEXTS = ("3.2", "many")     # the boxes of a figure in GiB


def texts_for(seen, field):
    found = TEXTS.get((seen.twin.name, field.name))
    return found or (GIB_TEXTS if field.unit == "GiB" else None) or ("", "")


def _fill(seen, field):
    text = texts_for(seen, field)[0]
    assert text, f"{seen.twin.name}: say in TEXTS what to type into {field.name}"
    box = seen.box(field)
    box.click()
    box.fill(text)
    seen.card.locator(".kv-title").click()      # leaving the box takes it
    seen.tell(field.name, text)
    seen.agrees()


def _type(seen, field):
    text = texts_for(seen, field)[1]
    box = seen.box(field)
    box.focus()
    seen.page.keyboard.press("ControlOrMeta+a")
    seen.page.keyboard.insert_text(text)
    seen.page.keyboard.press("Tab")
    seen.tell(field.name, text)
    seen.agrees(drawn=False)


def _add_a_row(seen, field):
    rows = seen.twin.raw[field.name]
    seen.card.get_by_role("button", name="Add a row").click()
    seen.tell(field.name, [*rows, list(rows[-1])])
    seen.agrees()
    rows = seen.twin.raw[field.name]
    seen.card.get_by_role("button", name="Remove row 1", exact=True).click()
    seen.tell(field.name, rows[1:])
    seen.agrees()


def _type_in_a_row(seen, field):
    for number, column in enumerate(field.columns):
        rows = [list(row) for row in seen.twin.raw[field.name]]
        box = seen.cell(column, 0)
        box.focus()
        if column.kind == "choice":
            options = list(column.options)
            now = options.index(rows[0][number])
            key, then = ("ArrowDown", now + 1) if now + 1 < len(options) else ("ArrowUp", now - 1)
            seen.page.keyboard.press(key)
            rows[0][number] = options[then]
        else:
            rows[0][number] = str(round(float(rows[0][number].replace(",", "")) * 0.75, 0 if column.integer else 2))
            rows[0][number] = rows[0][number].removesuffix(".0") if column.integer else rows[0][number]
            seen.page.keyboard.press("ControlOrMeta+a")
            seen.page.keyboard.insert_text(rows[0][number])
            seen.page.keyboard.press("Enter")
        seen.tell(field.name, rows)
        seen.agrees()
