"""Stored pictures: whole, and no larger than they need be."""
import zlib

import pytest

vl_convert = pytest.importorskip("vl_convert")

from kvlib import charts  # noqa: E402


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
    """The rows of pixels of an RGBA picture, as PNG's filters 0 and 1 leave them."""
    found = chunks(png)
    width = int.from_bytes(found[b"IHDR"][:4], "big")
    raw = zlib.decompress(found[b"IDAT"])
    for at in range(0, len(raw), 4 * width + 1):
        assert raw[at] in (0, 1)
        line = bytearray(raw[at + 1:at + 4 * width + 1])
        if raw[at]:
            for i in range(4, len(line)):
                line[i] = (line[i] + line[i - 4]) & 255
        yield bytes(line)


def pool():
    return [charts.themed(charts.blocks(count=60))], {"blocks": charts.blocks_rows(["A"] * 60)}


def test_a_picture_keeps_its_pixels_in_a_fraction_of_the_bytes(monkeypatch):
    small = charts.png(*pool())
    monkeypatch.setattr(charts, "_packed", lambda png: png)
    large = charts.png(*pool())
    assert list(lines(small)) == list(lines(large))
    assert len(small) < len(large) / 2


def test_the_last_line_of_a_pool_is_whole():
    *_, last = lines(charts.png(*pool()))
    assert set(last) == {255}, "the picture ends in white, not in a cell cut through"
