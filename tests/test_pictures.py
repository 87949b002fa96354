"""Stored pictures: whole, and no larger than they need be."""
import json
import zlib

import pytest

vl_convert = pytest.importorskip("vl_convert")

from kvlib import charts  # noqa: E402
from kvlib.panels import budget_pictures, calculators, own_pictures, parallel_knobs, parallel_pictures, read_log  # noqa: E402


def chunks(png):
    at, found = 8, {}
    while at < len(png):
        size = int.from_bytes(png[at:at + 4], "big")
        name, data, check = png[at + 4:at + 8], png[at + 8:at + 8 + size], png[at + 8 + size:at + 12 + size]
        assert int.from_bytes(check, "big") == zlib.crc32(name + data)
        found[name] = found.get(name, b"") + data
        at += 12 + size
    return found


def lines(png):
    """The rows of a picture as red, green and blue; PNG's filters 0 and 1, with and without a palette."""
    found = chunks(png)
    width, kind = int.from_bytes(found[b"IHDR"][:4], "big"), found[b"IHDR"][9]
    depth = {2: 3, 3: 1, 6: 4}[kind]
    raw = zlib.decompress(found[b"IDAT"])
    for at in range(0, len(raw), depth * width + 1):
        assert raw[at] in (0, 1)
        line = bytearray(raw[at + 1:at + depth * width + 1])
        if raw[at]:
            for i in range(depth, len(line)):
                line[i] = (line[i] + line[i - depth]) & 255
        if kind == 3:
            yield b"".join(found[b"PLTE"][3 * i:3 * i + 3] for i in line)
        else:
            yield b"".join(bytes(line[i:i + 3]) for i in range(0, len(line), depth))


def pool():
    return [charts.themed(charts.blocks(count=60))], {"blocks": charts.blocks_rows(["A"] * 60)}


def many_colours():
    shades = [f"#{r:02x}{g:02x}80" for r in range(0, 256, 15) for g in range(0, 256, 15)]
    return [charts.themed(charts.blocks(count=len(shades)))], {
        "blocks": charts.blocks_rows(shades, colours=dict(zip(shades, shades)))}


@pytest.mark.parametrize("picture, kind", [(pool, 3), (many_colours, 2)], ids=["palette", "true colour"])
def test_a_picture_keeps_its_pixels_in_a_fraction_of_the_bytes(monkeypatch, picture, kind):
    small = charts.png(*picture())
    monkeypatch.setattr(charts, "_packed", lambda png: png)
    large = charts.png(*picture())
    assert chunks(small)[b"IHDR"][9] == kind
    assert list(lines(small)) == list(lines(large))
    assert len(small) < len(large) / 2


def test_a_picture_of_another_make_is_left_alone():
    small = charts.png(*pool())
    assert charts._packed(small) == small


def test_the_last_line_of_a_pool_is_whole():
    *_, last = lines(charts.png(*pool()))
    assert set(last) == {255}, "the picture ends in white, not in a cell cut through"


def test_a_spec_made_once_is_the_one_made_afresh():
    """Altair takes 50 ms for a spec, so a new end of an axis or a new title is filled in; the arithmetic of none depends on them."""
    made = [(budget_pictures.bar_spec, (8,), (320,)), (budget_pictures.strips_spec, (3, 80, "GiB"), (3, 20, "tokens", "guess")),
            (budget_pictures.span_spec, (4, "requests of 5"), (0.5, "requests of 6", "refused")),
            (parallel_pictures.price_spec, (64,), (512,)), (parallel_pictures.spans_spec, (("a", "b"), 25_000, "tokens"), (("a", "b", "c"), 4, "requests")),
            (own_pictures.compare_spec, (5,), (1_000,)), (read_log._bar, (8,), (128,)), (calculators._bars, (0.5,), (40,)),
            (parallel_knobs.ranks_spec, (4.0,), (1_000,))]
    for spec, *calls in made:
        for call in calls:
            assert json.loads(json.dumps(spec(*call))) == json.loads(json.dumps(spec.__wrapped__(*call))), (spec.__name__, call)
            assert spec(*call) is spec(*call)
