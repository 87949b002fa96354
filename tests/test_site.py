"""The static site, without a browser: its links, its words, and a twin's table held against the panel itself."""
import base64
import gzip
import html
import inspect
import json
import random
import re

import pytest
import test_doctests

import kvlib
from kvlib import catalog, controls
from kvlib.tables import styled_by_sheet
from kvlib.website import api, build, links, teaching, twins
from kvlib.website.lessons import NOTEBOOKS, anchor, names, printed, words_of
from kvlib.website.notes import NOTES
from kvlib.website.offered import TWINS

SMALL = ("FirstLine", "PageAndBlock", "WorstCase")
BY_NAME = {twin.name: twin for twin in TWINS}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """All pages; the tables of three small twins."""
    folder = tmp_path_factory.mktemp("site") / "_site"
    build.build(folder, twins=False)
    (folder / "twins").mkdir()
    for number, twin in enumerate(TWINS):
        if twin.name in SMALL:
            build.write_twin(folder, number)
    return folder


def table_of(folder, twin):
    """A twin's table as the page unpacks it."""
    packed = re.fullmatch(r'kvlibTwins\.arrived\("([\w-]+)", "([\w+/=]+)"\);\n', (folder / "twins" / f"{twin.key}.js").read_text("utf-8"))
    assert packed.group(1) == twin.key
    return json.loads(gzip.decompress(base64.b64decode(packed.group(2))))


def test_links_ids_and_words(site):
    assert links.problems(site) == []


def test_a_dead_link_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="x">x</h1><p id="x"><a href="#y"></a><a href="b.html"></a><img src="data:,">'
                                     '<script src="https://example.org/a.js"></script>', "utf-8")
    said = " ".join(links.problems(tmp_path))
    for words in ("'x' stands twice", "no place 'y'", "there is no b.html", "has no words", "from outside"):
        assert words in said


@pytest.mark.parametrize("name", names())
def test_every_notebook_is_a_page_with_the_anchors_of_lab(site, name):
    text = (site / f"{name}.html").read_text("utf-8")
    ids = links.seen(site / f"{name}.html").ids
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    for cell in notebook["cells"]:
        assert cell["id"] in ids
    assert "$$" not in re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL)
    assert not re.search(r"\\(text|frac|times|_)\b", re.sub(r"<(pre|annotation).*?</\1>", "", text, flags=re.DOTALL))


def test_a_heading_has_the_anchor_that_lab_gives_it():
    assert anchor("Three <em>boxes</em>, one answer") == "Three-boxes,-one-answer"


def test_columns_keep_their_lines_and_sentences_may_break():
    assert printed("one token   144 KiB\nthe pool    93 GiB") == '<pre class="printed">one token   144 KiB\nthe pool    93 GiB</pre>'
    assert 'class="printed flows"' in printed("GPU KV cache size: 681,600 tokens")
    assert 'class="printed flows"' in printed("a   b" + 200 * "c")


def test_words_without_tags_keep_their_punctuation():
    assert words_of("say <b>exact</b>, <b>off</b> (or <i>not</i>).") == "say exact, off (or not)."


def test_formulas_are_there(site):
    """One for each between dollars in the lessons."""
    for name in names():
        cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
        source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        wanted = len(re.findall(r"\$\$.+?\$\$", re.sub(r"`[^`]*`", "", source), re.DOTALL))
        assert (site / f"{name}.html").read_text("utf-8").count('class="formula"') == wanted


def test_each_row_of_the_notes_leads_to_its_cell(site):
    rows = 0
    for note in NOTES:
        text = (site / f"{note.page}.html").read_text("utf-8")
        for row in catalog.note_rows(note.file):
            rows += 1
            assert f'<tr id="{row["id"]}">' in text
            assert f'href="{row["notebook"].removesuffix(".ipynb")}.html#{row["cell"]}"' in text
            lesson = (site / row["notebook"].replace(".ipynb", ".html")).read_text("utf-8")
            assert f'href="{note.page}.html#{row["id"]}"' in lesson
    assert rows == 37 + 33 + 29    # as data/README.md counts them


def cells_of(path):
    """The markup of each cell of a page, by its id; without code and without the links to the notes."""
    text = re.sub(r'<p class="rows">.*?</p>|<details class="code">.*?</details>', "", path.read_text("utf-8"), flags=re.DOTALL)
    pieces = re.split(r'<(?:section class="cell"|div class="cell ran") id="([^"]+)">', text)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def test_a_table_of_a_note_leads_to_a_table_with_its_figures(site):
    shows = {"table": ("<table",), "figure": ("<img",), "control": ("data-twin=", "<img")}
    checked = 0
    for row in (row for note in NOTES for row in catalog.note_rows(note.file) if row["kind"] in shows):
        cell = cells_of(site / row["notebook"].replace(".ipynb", ".html"))[row["cell"]]
        assert any(mark in cell for mark in shows[row["kind"]]), row["id"]
        if row["kind"] == "table":
            there = words_of(cell).replace(",", "")
            for figure in re.findall(r"\d{3,}(?:\.\d+)?", row["printed"].replace(",", "")):
                checked += 1
                assert figure in there, (row["id"], figure)
    assert checked > 20


def test_no_twin_is_left_without_its_notebook(site):
    for twin in TWINS:
        assert f'data-twin="{twin.key}"' in (site / f"{twin.notebook}.html").read_text("utf-8"), twin.name


def test_a_teacher_finds_every_paper_and_solution(site):
    guide = (site / "guide.html").read_text("utf-8")
    for name in [*teaching.papers(), *teaching.solutions()]:
        assert f'href="{name}.html"' in guide, name
    assert 'id="sizing-a-hub"' in guide and 'href="#sizing-a-hub"' in guide
    first = (site / "index.html").read_text("utf-8")
    for name in ("guide", "handout", "quiz", "glossary"):
        assert f'href="{name}.html"' in first
    assert "<details class=\"nav-fold\">" in first and "<details class=\"nav-fold\" open>" in guide


def test_nothing_is_asked_from_outside(site):
    for path in [*site.glob("*.html"), *site.glob("assets/*")]:
        if path.name == "vega.js":     # it could load data by address; our pictures name none
            continue
        text = path.read_text("utf-8").replace("http://www.w3.org/1998/Math/MathML", "")
        assert not re.search(r"""(src=["']?|url\(["']?|import\s*\(?["']|@import\s*["'])(https?:)?//""", text), path.name
        assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon", text), path.name


def test_the_first_page_is_light(site):
    first = site / "index.html"
    asked = [reference for tag, reference in links.seen(first).references if tag in ("script", "link", "img") and ":" not in reference]
    assert sum((site / each).stat().st_size for each in asked) + first.stat().st_size < 300 * 1024


def test_search_finds_what_stands_under_a_heading(site):
    text = (site / "assets" / "search.js").read_text("utf-8")
    entries = json.loads(text.removeprefix("kvlibSearch = ").rstrip(";\n"))
    hit = next(entry for entry in entries if entry["heading"] == "Why 16.64x is not a limit")
    assert hit["page"] == "00_start_here.html" and hit["place"] == "Why-16.64x-is-not-a-limit"
    answers = {f"{name}.html" for name in (*teaching.solutions(), "quiz_answers")}      # not turned up by a learner's search
    assert {entry["page"] for entry in entries} == {path.name for path in site.glob("*.html")} - answers and len(answers) > 8
    assert not any("<" in entry["text"] and "</" in entry["text"] for entry in entries)


def test_another_folder_is_not_emptied(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine", "utf-8")
    with pytest.raises(SystemExit, match="holds something else than a site"):
        build.build(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


# ---- twins ----------------------------------------------------------------------------------

def shown_by_the_panel(twin, values):
    """What the notebook's panel shows when each input is set in turn; for a refusal its sentence alone."""
    controls.forget(twin.key)
    panel = twin.kind()
    inputs = {field.name: field for field in panel.inputs}
    texts = {name: inputs[name].text(value) for name, value in (values | twin.hidden(values)).items()}
    for name, text in texts.items():
        panel.set(**{name: text})
    view = panel.view
    if panel.error:
        return {"error": panel.error}
    words = view.description if isinstance(view.description, list) else [view.description]
    return {"answer": str(controls.esc(view.answer)), "note": str(controls.esc(view.note)),
            "table": styled_by_sheet(controls._joined(view.table)), "descriptions": [str(each) for each in words]}


def shown_by_the_table(data, place):
    pools, places = data["pools"], data["places"]
    if error := pools["error"][places["error"][place]]:
        return {"error": error}
    found = {name: pools[name][places[name][place]] for name in ("answer", "note", "table")}
    return found | {"descriptions": [pools["descriptions-each"][each] for each in pools["descriptions"][places["descriptions"][place]]]}


@pytest.mark.parametrize("name", SMALL)
def test_a_twin_shows_the_panels_own_figures(site, name):
    twin = BY_NAME[name]
    data = table_of(site, twin)
    settings = list(enumerate(twin.settings()))
    for place, values in random.Random(156).sample(settings, min(60, len(settings))):
        assert shown_by_the_table(data, place) == shown_by_the_panel(twin, values), values


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_a_twin_starts_as_its_panel_and_says_what_it_offers(twin):
    data = twins.head(twin)
    panel = twin.kind()
    assert data["raw"].items() <= {field.name: field.text(field.default) for field in panel.inputs}.items()
    said = html.unescape(re.sub("<[^>]+>", "", data["says"]))
    for field in panel.inputs:
        if field.name in twin.offered:
            assert field.label in said
    assert twin.more in said


@pytest.mark.parametrize("twin", [twin for twin in TWINS if twin.kind.follow is not controls.Panel.follow], ids=lambda twin: twin.name)
def test_what_moves_with_an_input_is_what_the_panel_moves(twin):
    data, pick = twins.head(twin), random.Random(4)
    shown = {*twin.offered, *twin.buttons}
    for values in pick.sample(list(twin.settings()), 4):
        for name, texts in data["moves"].items():
            panel = twins.panel_at(twin, values)
            for text, moved in texts.items():
                before = dict(panel.raw)
                panel.set(**{name: before[name] if text == "*" else text})
                after = {other: raw for other, raw in panel.raw.items() if other in shown and other != name}
                assert after == {other: moved.get(other, before[other]) for other in after}, (name, text)


# ---- the API page -----------------------------------------------------------------------------

def test_the_api_page_names_all_that_kvlib_offers():
    listed = [item.name for _, _, items in api.groups() for item in items]
    assert sorted(name for name in listed if "." not in name) == sorted(kvlib.__all__)
    assert {"fit.fit", "improve.improvements", "take_along.ticket"} <= set(listed)
    text, _, _ = api.body()
    for name in listed:
        assert f'<h3 id="{name}">' in text
    assert text.count('class="formula"') == sum(map(len, api.FORMULAS.values()))
    assert text.count("&gt;&gt;&gt;") >= 10


def modules_of_the_page():
    found = {inspect.getmodule(item.what).__name__ for _, _, items in api.groups() for item in items}
    return sorted(found | {module.__name__ for module in api.planning_modules()})


def test_its_examples_are_among_those_that_run():
    assert set(modules_of_the_page()) <= {"kvlib", *test_doctests.MODULES}
