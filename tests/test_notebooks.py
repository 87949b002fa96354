"""Every notebook: the rules of the house, and a fresh run equal to what is kept."""
import functools

import notebook_store as keep
import pytest

ALL = keep.names()
IDS = [path.stem for path in ALL]


@functools.cache
def fresh(path):
    return keep.stored(keep.run(path))


def on_a_worker(paths):
    """Two workers share the notebooks; each runs a notebook once."""
    return [pytest.param(path, id=path.stem, marks=[pytest.mark.notebook, pytest.mark.xdist_group(f"notebooks{i % 2}")])
            for i, path in enumerate(paths)]


@pytest.mark.parametrize("path", ALL, ids=IDS)
def test_rules(path):
    assert keep.rules(path) == []


@pytest.mark.parametrize("path", on_a_worker(ALL))
def test_runs_and_gives_what_is_kept(path):
    assert keep.compare(keep.read(path), fresh(path)) == []


def notebook_of(*sources):
    import nbformat
    cells = [nbformat.v4.new_markdown_cell("# Try", id="a0")]
    for i, source in enumerate(sources):
        cells.append(nbformat.v4.new_code_cell(source, id=f"c{i}"))
    return nbformat.v4.new_notebook(cells=cells)


def written_to(folder, *sources):
    import nbformat
    path = folder / "try.ipynb"
    nbformat.write(notebook_of(*sources), path)
    return path


@pytest.mark.notebook
@pytest.mark.xdist_group("notebooks0")
def test_errors_are_found_wherever_they_hide(tmp_path):
    path = written_to(
        tmp_path,
        "import ipywidgets as w\nout = w.Output()\nwith out:\n    1 / 0",
        "from kvlib.controls import Panel, View\nclass P(Panel):\n    name = 'p'\n    def compute(self, s):\n        raise KeyError('lost')\n",
        "try:\n    P()\nexcept KeyError:\n    pass",
        "[][1]")
    with pytest.raises(keep.NotebookFailed) as caught:
        keep.run(path)
    assert "ZeroDivisionError" in str(caught.value)
    assert "IndexError" in str(caught.value)


@pytest.mark.notebook
@pytest.mark.xdist_group("notebooks1")
def test_a_panel_is_kept_as_words_and_picture(tmp_path):
    path = written_to(tmp_path, "from kvlib import charts\ncharts.setup()", PANEL)
    assert keep.store(path) is True
    first = path.read_bytes()
    html, picture = keep.read(path).cells[2].outputs
    assert "<b>3</b> blocks" in html.data["text/html"] and keep.WIDGET_VIEW not in html.data
    assert picture.data["image/png"] and picture.data["text/plain"] == "A bar of 3."
    assert picture.metadata["image/png"]["alt"] == "A bar of 3."
    assert keep.store(path) is False, "a second run changes nothing"
    assert path.read_bytes() == first
    assert [r for r in keep.rules(path) if "text cell" not in r] == []


PANEL = """
import altair as alt
from kvlib.controls import Number, Panel, View, html, strong

class P(Panel):
    name = "p"
    inputs = [Number("n", 3, min=1, max=9)]
    def chart(self):
        bar = alt.Chart(alt.NamedData("bar")).mark_bar().encode(x=charts.axis_x("n", "blocks", (0, 9)))
        return bar.properties(width=200, height=80)
    def compute(self, s):
        return View(html("{} blocks", strong(s.n)), {"bar": [{"n": s.n}]}, description=f"A bar of {s.n}.")
P()
"""
