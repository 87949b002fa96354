"""What holds for every panel, as it starts: words for those who cannot move it, see it or use a mouse; titles on its axes."""
import re

import pytest

pytest.importorskip("ipywidgets")

from kvlib import charts, controls  # noqa: E402

from test_no_dull_control import edits, kinds  # noqa: E402


@pytest.fixture(params=kinds(), ids=lambda kind: kind.name)
def panel(request):
    controls.forget(request.param.name)
    return request.param()


def test_where_nothing_moves_it_says_what_to_do(panel):
    """In VS Code without widgets, on Colab, in a viewer of stored notebooks."""
    bundle = panel._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    for text in (data["text/html"], data["text/plain"]):
        assert plain(panel.view.answer) in plain(text)
    for words in ("Run this notebook in JupyterLab to move the controls.", "VS Code: choose the kernel", "Colab, GitHub, nbviewer: download"):
        assert words in data["text/html"]


def test_it_tells_how_keys_move_it_and_what_each_control_means(panel):
    key = plain(panel._key())
    for words in ("arrow keys go one stop", "Enter takes it", "Reset brings back the first values"):
        assert words in key
    for field in panel.inputs:
        assert field.label in key and field.help, field.name
        if field.kind == "number":
            assert field.range_text() and plain(field.range_text()) in key, field.name


def test_each_picture_states_its_figures_in_words(panel):
    shown = panel._shown()
    assert shown["specs"], "a panel shows a picture"
    assert shown["descriptions"] and all(re.search(r"\d", words) for words in shown["descriptions"])


def test_long_numbers_are_grouped(panel):
    """As it starts and with each input at both its ends; what is typed or printed by vLLM stands as it is."""
    assert ungrouped(panel) == []
    for field in panel.inputs:
        start = panel.raw[field.name]
        for swept, _, values in edits(panel, field):
            for value in values[:1] + values[-1:]:
                panel._change({field.name: value})
                assert ungrouped(panel) == [], (swept, value)
        panel._change({field.name: start})


def ungrouped(panel):
    shown = panel._shown()
    markup = re.sub(r"<(code|pre|samp)\b.*?</\1>", "", shown["answer"] + shown["note"] + shown["table"], flags=re.S)
    ours = [part for part in re.split("(?=<table)", markup) if ">flag</th>" not in part] + shown["descriptions"]
    ours += [value for rows in shown["rows"].values() for row in rows for key, value in row.items()
             if isinstance(value, str) and key not in ("colour", "ink")]
    return [text for text in (plain(each.replace("<", " <")) for each in ours) if re.search(r"(?<![\w.,/-])\d{5,}(?![\w/-])", text)]


def test_each_axis_has_a_title(panel):
    """A unit stands in it where the figure has one; an axis of names needs none."""
    shown = panel._shown()
    for spec in map(charts.filled, shown["specs"], shown["fills"]):
        for axis in ("x", "y"):
            drawn = [way for way in ways(spec, axis) if way.get("type") == "quantitative"]
            if drawn and all(way.get("axis", "shown") is not None for way in drawn):
                assert any(way.get("title") or way.get("axis", {}).get("title") for way in drawn), (axis, drawn)


def ways(spec, axis):
    """The encodings of an axis in a spec and its layers."""
    if isinstance(spec, dict):
        if axis in spec.get("encoding", {}):
            yield spec["encoding"][axis]
        for part in spec.values():
            yield from ways(part, axis)
    elif isinstance(spec, list):
        for part in spec:
            yield from ways(part, axis)


def plain(markup):
    import html
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", str(markup))).split())
