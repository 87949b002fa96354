"""What the stored notebooks show where nothing runs: on GitHub and nbviewer, which drop styles, scripts and classes."""
import re
from pathlib import Path
from urllib.parse import unquote

import notebook_store as keep
import pytest

from kvlib.website.lessons import plain_text, words_of

bleach = pytest.importorskip("bleach")    # nbconvert needs it, and so is there with JupyterLab

ALL = keep.names()
BOOKS = {path: keep.read(path) for path in ALL}
OF_NO_USE = re.compile(r"\bobject at 0x|^<[\w.]+ ?.*>$|^\w*(Widget|Box|Output|Chart|Card|Layout)\(", re.DOTALL)
TAGS = ("h1 h2 h3 h4 h5 h6 br b i strong em a pre code img div ins del sup sub p ol ul li table thead tbody tfoot tr th td caption "
        "details summary span small hr blockquote dl dt dd").split()
ATTRIBUTES = {"*": ["alt", "title", "align", "colspan", "rowspan", "scope", "width", "height", "href", "id"]}
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)|href=\"([^\"]+)\"")
each_notebook = pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)


def outputs(path):
    return [(cell.id, output) for cell in BOOKS[path].cells if cell.cell_type == "code" for output in cell.outputs]


def stripped(markup):
    """As GitHub shows it: no style, no script, no class."""
    markup = re.sub(r"<(style|script)\b.*?</\1>", "", markup, flags=re.DOTALL)
    return bleach.clean(markup, tags=set(TAGS), attributes=ATTRIBUTES, protocols={"http", "https", "data"}, strip=True)


def places(path):
    """The places of a notebook that a link can name: its headings, and its cells, which Lab finds."""
    text = "\n".join(cell.source for cell in BOOKS[path].cells if cell.cell_type == "markdown")
    found = re.findall(r"(?m)^#{1,6} +(.+?)\s*$", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    plain = [plain_text(re.sub(r"[*`]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)) for heading in found]
    return {heading.replace(" ", "-") for heading in plain} | {cell.id for cell in BOOKS[path].cells}


@each_notebook
def test_it_is_small_enough_to_be_shown(path):
    assert path.stat().st_size < 400 * 1024


@each_notebook
def test_each_picture_has_words(path):
    for cell, output in outputs(path):
        for kind in keep.PICTURES:
            if kind in output.get("data", {}):
                words = output.metadata.get(kind, {}).get("alt", "")
                assert len(words.split()) >= 3, f"{cell}: the picture's words are {words!r}"
    for cell in BOOKS[path].cells:
        if cell.cell_type == "markdown":
            assert "![](" not in cell.source, cell.id


@each_notebook
def test_no_output_is_left_that_says_nothing(path):
    for cell, output in outputs(path):
        data = output.get("data", {})
        assert not any("widget" in kind for kind in data), cell
        if set(data) == {"text/plain"}:
            assert not OF_NO_USE.search(data["text/plain"]), f"{cell}: {data['text/plain'][:80]!r}"


@each_notebook
def test_tables_outlive_the_loss_of_styles(path):
    """Every word, every heading of a column or row; nothing is told by a class or a script alone."""
    for cell, output in outputs(path):
        markup = output.get("data", {}).get("text/html", "")
        left = stripped(markup)
        assert words_of(left) == words_of(markup), cell
        assert left.count("<table>") == markup.count("<table"), cell
        for table in re.findall(r"<table.*?</table>", left, re.DOTALL):
            assert "<th" in table, cell


@each_notebook
def test_links_lead_to_files_and_headings(path):
    pieces = [(cell.id, cell.source) for cell in BOOKS[path].cells if cell.cell_type == "markdown"]
    pieces += [(cell, output.get("data", {}).get("text/html", "")) for cell, output in outputs(path)]
    for cell, text in pieces:
        for found in LINK.finditer(text):
            link = found.group(1) or found.group(2)
            if re.match(r"[a-z]+:", link):
                continue
            name, _, place = link.partition("#")
            target = (path.parent / unquote(name)).resolve() if name else Path(path)
            assert target.exists(), f"{cell}: {link}"
            if place and target in BOOKS:
                assert unquote(place) in places(target), f"{cell}: {link}"
