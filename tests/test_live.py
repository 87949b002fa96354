"""Live charts without a browser: what is sent, when, and that nothing is fetched."""
import gzip
import json
import math
import re

import pytest

pytest.importorskip("anywidget")

import altair as alt  # noqa: E402
from kvlib import charts, live  # noqa: E402
from kvlib.live import LiveChart  # noqa: E402
from panels import unpacked  # noqa: E402


def bars():
    x = charts.axis_x("gib", "GiB", (0, 100))
    return alt.Chart(alt.NamedData("bars")).mark_bar().encode(x=x, y="part:N").properties(width=300, height=80)


def test_the_spec_goes_once_then_only_rows(monkeypatch):
    chart = LiveChart(bars(), {"bars": [{"part": "KV", "gib": 93.61}]}, "KV 93.61 GiB")
    assert "datasets" not in chart.spec and chart.spec["autosize"]["type"] == "fit"
    sent = []
    monkeypatch.setattr(LiveChart, "_send", lambda self, msg, buffers=None: sent.append(msg["state"]))
    chart.rows = {"bars": [{"part": "KV", "gib": 50.0}]}
    assert sent == [{"rows": {"bars": {"count": 1, "columns": {"part": "KV", "gib": 50.0}}}}]


@pytest.mark.parametrize("rows", [
    [{"x": 1, "name": "a", "list": [0], "on": True}, {"x": 2, "name": "a", "list": [0], "on": False}],
    [{"x": None, "name": "a"}, {"x": None, "name": "b"}, {"x": None, "name": "a"}, {"x": None, "name": "a"}],
    [{"x": 1, "y": 1.0}, {"x": True, "y": 1}], [{"x": 0, "y": ""}, {"x": False, "y": None}], [{"x": 1}, {"y": 2}], [{"x": [1]}], [],
])
def test_packed_rows_are_the_rows_again(rows):
    table, = unpacked(json.loads(json.dumps(live.packed({"t": rows})))).values()
    keys = [key for row in rows for key in row]
    assert repr(table) == repr([{key: row.get(key) for key in dict.fromkeys(keys)} for row in rows])


def test_what_repeats_is_sent_once():
    rows = [{"at": i / 3, "colour": charts.COLOURS[("kv", "unused")[i % 2]], "ink": "#000000"} for i in range(100)]
    table = live.packed({"t": rows})["t"]
    assert table["columns"]["colour"]["values"] == ["#009E73", "#999999"] and table["columns"]["ink"] == "#000000"
    assert len(json.dumps(table)) < len(json.dumps(rows)) / 4


def test_rows_are_plain_numbers_whatever_they_were():
    pd = pytest.importorskip("pandas")
    np = pytest.importorskip("numpy")
    rows = live.clean_rows({"a": pd.DataFrame({"x": [1, 2], "y": [0.5, math.nan]}), "b": [{"z": np.int64(3), "w": math.inf}]})
    assert rows == {"a": [{"x": 1, "y": 0.5}, {"x": 2, "y": None}], "b": [{"z": 3, "w": None}]}
    assert type(rows["b"][0]["z"]) is int


def test_one_vega_for_all_charts_of_a_kernel():
    assert LiveChart(bars()).vega == LiveChart(bars()).vega
    assert len(LiveChart._esm) < 20_000, "a chart does not carry the bundle"


def test_vega_travels_as_a_value():
    """anywidget gives a widget's script two seconds to load, which a busy machine may miss with 0.9 MB."""
    LiveChart(bars())
    assert len(live._carrier._esm) < 2_000
    assert live.vega_bundle().encode() == gzip.decompress(live._carrier.script)
    assert len(live._carrier.script) < 400_000, "packed: it is most of what a notebook sends"


def test_the_bundle_is_whole_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "_cache_folder", lambda: tmp_path)
    text = live.vega_bundle()
    assert "kvlibPage" in text and len(text) > 500_000
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", b"cut off", whole[: len(whole) // 2], whole[:999] + b"?" + whole[1000:], whole[:-8] + bytes(8)):
        kept.write_bytes(damaged)
        assert live.vega_bundle() == text, "a damaged copy is made anew"
        assert kept.read_bytes() == whole


def test_no_cache_folder_is_no_error(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(live, "_cache_folder", lambda: blocked / "below")
    assert "kvlibPage" in live.vega_bundle()


def test_scripts_name_no_address():
    for name in ("chart.js", "fields.js", "card.js", "live.js", "card.css"):
        assert not re.search(r"https?:|//cdn|@import", live.web(name)), name


def test_a_picture_with_words_for_every_front_end():
    data, _ = LiveChart(bars(), {"bars": [{"part": "KV", "gib": 93.61}]}, "KV 93.61 GiB")._repr_mimebundle_()
    assert data["text/plain"] == "KV 93.61 GiB" and data["image/png"]


def test_static_pictures_carry_their_words(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    pd = pytest.importorskip("pandas")
    chart = alt.Chart(pd.DataFrame({"a": [1, 2], "b": [2, 1]})).mark_line().encode(x="a:Q", y="b:Q")
    data, meta = charts.static(chart, "A line that falls.")._repr_mimebundle_()
    assert data["text/plain"] == "A line that falls." and meta["image/png"]["alt"] == "A line that falls."
    assert 'aria-label="A line that falls."' in data["text/html"] and "currentColor" in data["text/html"]
    assert charts.static(chart, "x")._repr_mimebundle_()[0]["image/png"] == data["image/png"], "the same each time"


def test_setup_makes_a_bare_chart_a_static_picture():
    charts.setup()
    try:
        chart = alt.Chart(alt.Data(values=[{"a": 1}]), description="One dot.").mark_point().encode(x="a:Q")
        data, meta = chart._repr_mimebundle_()
        assert data["text/plain"] == "One dot." and data["image/png"] and "<script" not in data["text/html"]
    finally:
        alt.renderers.enable("default")
        alt.theme.enable("default")


@pytest.mark.parametrize("make, rows", [
    (lambda: charts.memory_bar(limit=130), {"bar": charts.memory_bar_rows([("a", 1, "weights"), ("b", 100, "kv")], limit=130)}),
    (lambda: charts.blocks(count=7, columns=4), {"blocks": charts.blocks_rows(["A", "B", None, "A", "C", None, None], columns=4)}),
    (lambda: charts.lines(x=("t", "tokens", (1024, 8192)), y=("b", "GiB", (0, 4)), log_x=True),
     {"lines": charts.lines_rows({"full": ([(1024, 1), (8192, 4)], "kv")}, x="t", y="b")}),
    (lambda: charts.ranks(count=3, domain=(0, 9), title="GiB"), {"ranks": charts.ranks_rows([("x", 4, "4 GiB", "kv")])}),
    (lambda: (bars() + charts.guess_rule(field="gib")).properties(width=300, height=80),
     {"bars": [{"part": "KV", "gib": 3}], "guess": charts.guess_rows(4, field="gib")}),
])
def test_builders_draw(make, rows):
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert charts.png(charts.themed(make()), live.clean_rows(rows))[:4] == b"\x89PNG"


def test_narrow_parts_are_labelled_beside_the_bar_without_touching():
    parts = [("weights", 15.27, "weights"), ("graphs", 0.4, "reserve"), ("reserve", 2.6, "reserve"), ("KV cache", 93.6, "kv")]
    rows = charts.memory_bar_rows(parts, limit=130, tiers=3)
    below = [r for r in rows if not r["inside"]]
    assert [r["name"] for r in below] == ["weights", "graphs", "reserve"]
    assert len({r["name_y"] for r in below}) == 3


@pytest.mark.parametrize("parts, limit, tiers", [
    ([("weights", 15.27, "weights"), ("reserve", 0.4, "reserve", "0.4 to 3.7 GiB assumed"), ("", 3.2, "reserve", ""),
      ("KV cache", 2.73, "kv", "2.7 GiB at least"), ("not requested", 1.9, "unused")], 32, 3),
    ([("weights", 64.4, "weights"), ("reserve", 0.2, "reserve", "0.2 to 16.5 GiB assumed"), ("", 16.3, "reserve", ""),
      ("KV cache", 31, "kv", "31.1 GiB at least"), ("not requested", 9.7, "unused")], 128, 3),
    ([("weights", 15.27, "weights"), ("runtime", 3.02, "reserve"), ("KV cache", 93.61, "kv"), ("spare", 2.01, "unused"),
      ("in use before", 7.72, "unused")], 128, 2),
])
def test_labels_below_the_bar_meet_neither_labels_nor_stems(parts, limit, tiers):
    rows = [r for r in charts.memory_bar_rows(parts, limit=limit, tiers=tiers) if not r["inside"]]
    per, boxes = (charts.WIDTH - 24) / limit, []
    for row in rows:
        stem, wide = row["middle"] * per, 7.0 * max(len(row["name"]), len(row["figure"])) + 10
        left, right = (stem - wide, stem) if row["right"] else (stem, stem + wide)
        assert left > -4 and right < charts.WIDTH
        boxes.append((left, right, stem, row["name_y"]))
    for left, right, stem, y in boxes:
        for a, b, other, lower in boxes:
            if (left, y) != (a, lower):
                assert not (y == lower and left < b and a < right)
                assert not (lower > y and left < other < right), "a stem crosses a label"


def test_strips_leave_out_what_is_not_there():
    rows = charts.strips_rows([("a card", 0, [("weights", 15, "weights"), ("short", 0, "refused"), ("left", -1, "unused")])],
                              limit=80)
    assert [row["name"] for row in rows["strips"]] == ["weights"] and rows["strips-heads"][0]["text"] == "a card"
    spec = charts.themed(charts.strips(count=1, limit=80, title="GiB"))
    assert charts.png(spec, rows | {"guess": charts.strips_guess(20, strip=0, limit=80)})[:4] == b"\x89PNG"


def test_ink_reads_on_every_colour():
    def lum(h):
        p = [int(h[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        p = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in p]
        return 0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2]
    for colour in charts.COLOURS.values():
        a, b = sorted((lum(colour), lum(charts.ink_on(colour))))
        assert (b + 0.05) / (a + 0.05) >= 4.5, colour
