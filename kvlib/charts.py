"""Colours, the chart theme, static pictures and a few spec builders.

``setup()`` once per notebook. A live picture is a spec without data (``alt.NamedData``) plus rows:
each builder below comes as a pair ``x(...)`` (the spec) and ``x_rows(...)`` (its rows), so that the
spec can be sent once and the rows on every change.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import inspect
import json
import os
import re
import sys
import zlib

# jsonschema builds a grammar of international addresses at import (seconds), for a check no chart asks for
_unused = sys.modules.setdefault("rfc3987_syntax", None)
import altair as alt  # noqa: E402

if _unused is None:
    del sys.modules["rfc3987_syntax"]

COLOURS = {
    "weights": "#0072B2",  # model weights
    "reserve": "#E69F00",  # activations, graphs, other runtime memory
    "kv": "#009E73",       # KV cache of full attention
    "window": "#56B4E9",   # KV cache of sliding-window layers
    "state": "#CC79A7",    # recurrent state
    "padding": "#F0E442",  # bytes allocated to make pages equal
    "unused": "#999999",   # not requested, or free; shown at 40 %
    "refused": "#D55E00",  # does not fit
}
OWNERS = ("#009E73", "#56B4E9", "#E69F00", "#CC79A7", "#0072B2", "#F0E442", "#D55E00")
WIDTH = 520
_INK, _FONT = "currentColor", "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_SCALE = 1.5
_PRINT_INK, _PRINT_FONT = "#1f1f1f", "Arial, Helvetica, sans-serif"


def config() -> dict:
    """The Vega-Lite config of all our charts: ink of the page, quiet grid, no frame."""
    lines = {"domainColor": _INK, "tickColor": _INK, "gridColor": _INK, "domainOpacity": 0.45,
             "tickOpacity": 0.45, "gridOpacity": 0.13}
    words = {"labelColor": _INK, "titleColor": _INK, "labelFontSize": 12, "titleFontSize": 12,
             "titleFontWeight": "normal"}
    return {
        "font": _FONT, "background": "transparent", "view": {"stroke": None},
        "axis": lines | words | {"labelLimit": 220}, "axisQuantitative": {"tickCount": 6},
        "axisDiscrete": {"grid": False, "ticks": False},
        "legend": words | {"orient": "top", "title": None, "columnPadding": 18}, "header": words,
        "title": {"color": _INK, "subtitleColor": _INK, "fontSize": 13, "anchor": "start"},
        "text": {"color": _INK, "fontSize": 12}, "rule": {"color": _INK}, "tick": {"color": _INK},
        "mark": {"color": COLOURS["weights"]}, "line": {"strokeWidth": 2}, "range": {"category": list(OWNERS)},
    }


def setup() -> None:
    """Make our theme Altair's theme, and pictures static (no browser code, nothing fetched)."""
    _register()
    alt.theme.enable("kvlib")
    alt.renderers.register("kvlib", lambda spec, **_: static(spec, alt=spec.get("description", ""))._bundle())
    alt.renderers.enable("kvlib")


@functools.cache
def _register() -> None:
    alt.theme.register("kvlib", enable=False)(lambda: {"config": config()})


class Themed(dict):
    """A spec that has our config already. ``template`` has blanks in place of some values, ``fills`` are (blank, value)."""

    template: Themed | None = None
    fills: tuple = ()


def themed(chart) -> Themed:
    """The spec of a chart (Altair or a ready dict) with our config under its own."""
    if isinstance(chart, Themed):
        return chart
    _register()
    if isinstance(chart, dict):
        spec = json.loads(json.dumps(chart))
        spec["config"] = _over(config(), spec.get("config", {}))
    else:
        with alt.theme.enable("kvlib"):
            spec = chart.to_dict()
    single = not {"hconcat", "vconcat", "concat", "facet", "repeat"} & set(spec)
    sized = isinstance(spec.get("width"), (int, float)) and isinstance(spec.get("height"), (int, float))
    if single and sized:
        # The size is that of the whole picture, labels included: it cannot grow while numbers change.
        spec.setdefault("autosize", {"type": "fit", "contains": "padding"})
        spec["usermeta"] = spec.get("usermeta", {}) | {"fluid": True}
    return Themed(spec)


def made_once(*names):
    """For a function that makes a spec: Altair, which takes its time, makes it once; other values of the arguments ``names``
    (the end of an axis, a title) are filled in where these stand by themselves. A card sends the template once, and then
    what fills it.

    >>> @made_once("limit")
    ... def spec(limit): return Themed(x={"domain": [0, limit]})
    >>> spec(7), spec(9)
    ({'x': {'domain': [0, 7]}}, {'x': {'domain': [0, 9]}})
    >>> spec(9).template, spec(9).fills
    ({'x': {'domain': [0, 1000000000.0]}}, ((1000000000.0, 9),))
    """
    def decorate(make):
        makes, template = inspect.signature(make), functools.cache(make)

        @functools.cache
        @functools.wraps(make)
        def made(*args, **kwargs):
            given = makes.bind(*args, **kwargs)
            given.apply_defaults()
            blanks = {name: f"<{name}>" if isinstance(given.arguments[name], str) else 1e9 + number for number, name in enumerate(names)}
            fills = tuple((blank, given.arguments[name]) for name, blank in blanks.items())
            open_spec = template(**given.arguments | blanks)
            spec = filled(open_spec, fills)
            spec.template, spec.fills = open_spec, fills
            return spec
        return made
    return decorate


def filled(spec: dict, fills) -> Themed:
    """The spec with its blanks filled: ``fills`` are (blank, value)."""
    return Themed(_filled(spec, dict(fills)))


def _filled(part, values: dict):
    if isinstance(part, dict):
        return {key: _filled(each, values) for key, each in part.items()}
    if isinstance(part, list):
        return [_filled(each, values) for each in part]
    return values.get(part, part) if isinstance(part, (str, float)) else part


def _over(base: dict, own: dict) -> dict:
    out = dict(base)
    for key, value in own.items():
        out[key] = _over(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on the colour.

    >>> ink_on("#0072B2"), ink_on("#F0E442")
    ('#ffffff', '#000000')
    """
    def lum(hex_):
        parts = [int(hex_[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light = lum(colour)
    return "#ffffff" if 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 else "#000000"


def _whole(specs, rows) -> dict:
    """One spec of one or more, with their rows in it."""
    specs = list(specs) if isinstance(specs, (list, tuple)) else [specs]
    if len(specs) == 1:
        whole = dict(specs[0])
    else:
        keep = ("config", "$schema", "autosize", "usermeta")
        whole = {"vconcat": [{k: v for k, v in s.items() if k not in keep} for s in specs],
                 "config": specs[0].get("config", {}), "$schema": specs[0].get("$schema")}
    whole["datasets"] = whole.get("datasets", {}) | (rows or {})
    whole.setdefault("padding", 8)
    return whole


def png(specs, rows=None, scale=_SCALE) -> bytes:
    """One picture of one or more specs with their rows, on white."""
    import vl_convert

    whole = _whole(specs, rows)
    text = json.dumps(whole).replace(f'"{_INK}"', f'"{_PRINT_INK}"').replace(json.dumps(_FONT), json.dumps(_PRINT_FONT))
    whole = json.loads(text)
    whole["background"] = "#ffffff"
    whole.setdefault("config", {})["background"] = "#ffffff"
    return _packed(vl_convert.vegalite_to_png(whole, scale=scale))


def _packed(png_bytes: bytes) -> bytes:
    """The same picture in a fraction of the bytes: no alpha, a palette where 256 colours do, compressed well."""
    import numpy as np

    parts, at = {}, 8
    while at < len(png_bytes):
        size = int.from_bytes(png_bytes[at:at + 4], "big")
        name = png_bytes[at + 4:at + 8]
        parts[name] = parts.get(name, b"") + png_bytes[at + 8:at + 8 + size]
        at += 12 + size
    width, high = (int.from_bytes(parts[b"IHDR"][i:i + 4], "big") for i in (0, 4))
    if parts[b"IHDR"][8:] != b"\x08\x06\0\0\0":  # 8 bits, RGBA
        return png_bytes
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(high, 4 * width + 1)
    if not (lines[:, 0] == 1).all():  # each pixel less the one to its left
        return png_bytes
    pixels = np.cumsum(lines[:, 1:].reshape(high, width, 4), axis=1, dtype=np.uint8)
    if not (pixels[..., 3] == 255).all():
        return png_bytes
    colours, places = np.unique(np.ascontiguousarray(pixels).view(np.uint32).ravel(), return_inverse=True)
    if len(colours) <= 256:
        kind, palette = 3, colours.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
        data = places.astype(np.uint8).reshape(high, width)
    else:
        kind, palette, data = 2, b"", pixels[..., :3].reshape(high, 3 * width)
    parts[b"IHDR"] = parts[b"IHDR"][:9] + bytes([kind, 0, 0, 0])
    data = np.hstack([np.zeros((high, 1), np.uint8), data]).tobytes()
    out = [(b"IHDR", parts[b"IHDR"]), (b"pHYs", parts.get(b"pHYs")), (b"PLTE", palette),
           (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")]
    return png_bytes[:8] + b"".join(
        len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big")
        for name, body in out if body or name == b"IEND")


def svg(specs, rows=None, words="") -> str:
    """The same picture as SVG to stand in a page: it takes the page's ink, and its words are its name."""
    import vl_convert

    text = vl_convert.vegalite_to_svg(_whole(specs, rows))
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]  # ids must differ between pictures on one page
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>p{mark}-", text)
    text = re.sub(r' (?:role|aria-[a-z]+)="[^"]*"', "", text)  # one image with one name
    name = html.escape(words, quote=True)
    return text.replace("<svg ", f'<svg role="img" aria-label="{name}" style="max-width:100%;height:auto" ', 1)


def picture(specs, rows, words: str) -> dict:
    """The MIME parts of a picture: image/png and its words. Without a picture only the words."""
    try:
        return {"image/png": base64.b64encode(png(specs, rows)).decode("ascii"), "text/plain": words}
    except Exception:  # a missing picture must not take the control with it
        if os.environ.get("KVLIB_STRICT") == "1":
            raise
        return {"text/plain": words}


def about(data: dict, words: str) -> dict:
    """The metadata of a picture: its words, and the width at which it is sharp."""
    if "image/png" not in data:
        return {}
    head = base64.b64decode(data["image/png"][:64])
    return {"alt": words, "width": round(int.from_bytes(head[16:20], "big") / _SCALE)}


class Static:
    """A chart as a picture with words for readers who do not see it."""

    def __init__(self, chart, alt: str):
        self.spec, self.alt = themed(chart), alt

    def _bundle(self):
        data = picture([self.spec], None, self.alt)
        if "image/png" in data:
            # JupyterLab gives no words to a PNG, and a white picture dazzles in its dark theme.
            data["text/html"] = f'<div class="kv-static">{svg([self.spec], None, self.alt)}</div>'
        return data, {"image/png": about(data, self.alt)}

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self._bundle()

    def __repr__(self):
        return self.alt


def static(chart, alt: str) -> Static:
    """A static picture of an Altair chart (with its data in it). ``alt`` states what it shows."""
    return Static(chart, alt)


# ---- builders -------------------------------------------------------------------------------

def _pixels(field, size):
    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0, size], range=[0, size], nice=False), axis=None)


def _own(field):
    return alt.Color(f"{field}:N", scale=None, legend=None)


def axis_x(field, title, domain, **more):
    """A quantitative x axis with a title (unit included) and a fixed domain."""
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(domain=list(domain), nice=False, clamp=True), **more)


def axis_y(field, title, domain, **more):
    """A quantitative y axis with a title (unit included) and a fixed domain."""
    return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(domain=list(domain), nice=False, clamp=True), **more)


_BAR_TOP, _BAR_TALL, _TIER = 6, 46, 34


def memory_bar(name="bar", *, limit, title="GiB", width=WIDTH, tiers=2):
    """One stacked bar from 0 to ``limit``; parts labelled in the bar, narrow ones below it."""
    base = alt.Chart(alt.NamedData(name))
    x = axis_x("start", title, (0, limit), axis=alt.Axis(orient="bottom", grid=False))
    plot = _BAR_TOP + _BAR_TALL + tiers * _TIER + 8
    bars = base.mark_rect(stroke=_INK, strokeWidth=0.6, strokeOpacity=0.6).encode(
        x=x, x2="end:Q", y=alt.value(_BAR_TOP), y2=alt.value(_BAR_TOP + _BAR_TALL), color=_own("colour"),
        opacity=alt.Opacity("opacity:Q", scale=None), tooltip=["name:N", "figure:N"])
    inside = base.transform_filter("datum.inside")
    below = base.transform_filter("!datum.inside")
    at = alt.X("middle:Q")
    text = [
        inside.mark_text(fontWeight="bold").encode(x=at, y=alt.value(_BAR_TOP + 16), text="name:N", color=_own("ink")),
        inside.mark_text().encode(x=at, y=alt.value(_BAR_TOP + 32), text="figure:N", color=_own("ink")),
        below.mark_rule(strokeOpacity=0.6).encode(x=at, y=_pixels("stem", plot), y2="stem_end:Q"),
    ]
    for side, want in (("left", "!datum.inside && !datum.right"), ("right", "!datum.inside && datum.right")):
        part, dx = base.transform_filter(want), 4 if side == "left" else -4
        text += [part.mark_text(fontWeight="bold", align=side, dx=dx).encode(x=at, y=_pixels("name_y", plot), text="name:N"),
                 part.mark_text(align=side, dx=dx).encode(x=at, y=_pixels("figure_y", plot), text="figure:N")]
    return alt.layer(bars, *text).properties(width=width, height=plot + 48)


def memory_bar_rows(parts, *, limit, unit="GiB", width=WIDTH, tiers=2):
    """Rows for :func:`memory_bar`. ``parts``: (name, amount, meaning) in order, meaning a key of COLOURS;
    a fourth item replaces the printed figure."""
    per = (width - 24) / limit
    rows, start = [], 0.0
    for name, amount, meaning, *figure in parts:
        amount = max(0.0, float(amount))
        text = figure[0] if figure else f"{amount:.2f} {unit}"
        wide = 7.0 * max(len(name), len(text)) + 10
        faint = meaning == "unused"
        left, end = min(start, limit), min(start + amount, limit)   # what is beyond the bar's end is not drawn
        rows.append({
            "name": name, "figure": text, "start": left, "end": end, "middle": (left + end) / 2, "colour": COLOURS[meaning],
            "opacity": 0.4 if faint else 1.0, "ink": _INK if faint else ink_on(COLOURS[meaning]),
            "inside": (end - left) * per >= wide, "wide": wide,
        })
        start += amount
    below = [row for row in rows if not row["inside"]]
    places = _placed(tuple((row["middle"], row["wide"]) for row in below), per, limit, tiers)
    for row, place in zip(below, places, strict=True):
        row["tier_y"], row["right"] = place
    for row in rows:
        del row["wide"]
        row.setdefault("tier_y", 0)
        row |= {"stem": _BAR_TOP + _BAR_TALL, "stem_end": row["tier_y"] + 2, "name_y": row["tier_y"] + 8,
                "figure_y": row.pop("tier_y") + 22, "right": row.pop("right", False)}
    return rows


@functools.lru_cache(maxsize=256)     # most steps of a slider leave the bar as it is
def _placed(labels, per, limit, tiers):
    """Height and side of each label below the bar, so that labels and stems stay clear of one another.

    ``labels`` are (middle, width): where the stem stands in the bar's unit, how wide the words are in pixels.

    The first ``split`` labels run to the right of their stems, the leftmost lowest; the others to the left, the
    rightmost lowest: no stem crosses a label of its own side. Of all splits the one with the fewest clashes is taken.
    """
    ways = [(split, down) for split in range(len(labels) + 1) for down in ((0, 0), (0, 1), (1, 0))]
    hung = [_hang(labels, per, *way) for way in ways]
    best = min(range(len(ways)), key=lambda i: _clashes(hung[i], per * limit, tiers))
    return [(_BAR_TOP + _BAR_TALL + 6 + min(tier, tiers - 1) * _TIER, number >= ways[best][0])
            for number, (_, _, _, tier) in enumerate(hung[best])]


def _hang(labels, per, split, down):
    """(left end, right end, stem, tier) of each label in pixels; ``down`` lowers the left and the right group."""
    boxes = [None] * len(labels)
    groups = ((range(split - 1, -1, -1), 1, down[0]), (range(split, len(labels)), -1, down[1]))
    for numbers, side, lowest in groups:
        for i in numbers:
            stem, wide = labels[i][0] * per, labels[i][1] * side
            left, right = sorted((stem, stem + wide))
            own = [boxes[j] for j in numbers if boxes[j] is not None]
            under = [tier for a, b, _, tier in own if left < b and a < right]
            boxes[i] = (left, right, stem, max(under, default=lowest - 1) + 1)
    return boxes


def _clashes(boxes, width, tiers):
    """How bad a placing is: labels that meet or are crossed by a stem, labels beyond the picture, tiers used."""
    bad = sum(100 * (tier >= tiers) + 40 * (left < -4 or right > width + 12) + tier for left, right, _, tier in boxes)
    for i, (left, right, stem, tier) in enumerate(boxes):
        for a, b, other, beneath in boxes[i + 1:]:
            meet = min(tier, tiers - 1) == min(beneath, tiers - 1) and left < b and a < right
            crossed = beneath > tier and left < other < right or tier > beneath and a < stem < b
            bad += 100 * meet + 60 * crossed
    return bad


def blocks(name="blocks", *, count, columns=20, cell=26):
    """A pool of blocks as cells, in rows of ``columns``; the owner's letter stands in each cell."""
    lines = -(-count // columns)
    width, height = columns * cell, lines * cell
    base = alt.Chart(alt.NamedData(name)).encode(
        x=alt.X("x:Q", scale=alt.Scale(domain=[0, width], nice=False), axis=None), y=_pixels("y", height))
    cells = base.mark_rect(stroke=_INK, strokeOpacity=0.35, cornerRadius=2).encode(
        x2="x2:Q", y2="y2:Q", color=_own("colour"), opacity=alt.Opacity("opacity:Q", scale=None), tooltip=["owner:N"])
    words = base.mark_text(fontSize=11).encode(
        x=alt.X("cx:Q"), y=_pixels("cy", height), text="letter:N", color=_own("ink"))
    return (cells + words).properties(width=width, height=height + 16)  # 16: what the padding takes


def blocks_rows(owners, *, columns=20, cell=26, colours=None):
    """Rows for :func:`blocks`: one owner (a string, or None for a free block) per block, in order.
    ``colours`` maps an owner to a colour; others take the next of OWNERS in order of appearance."""
    colours, rows = dict(colours or {}), []
    for i, owner in enumerate(owners):
        if owner is not None and owner not in colours:
            colours[owner] = OWNERS[len(colours) % len(OWNERS)]
        colour = COLOURS["unused"] if owner is None else colours[owner]
        x, y = (i % columns) * cell, (i // columns) * cell
        rows.append({"x": x + 1, "x2": x + cell - 1, "y": y + 1, "y2": y + cell - 1, "cx": x + cell / 2,
                     "cy": y + cell / 2, "owner": "free" if owner is None else owner, "colour": colour,
                     "opacity": 0.25 if owner is None else 1.0, "letter": "" if owner is None else owner[:2],
                     "ink": _INK if owner is None else ink_on(colour)})
    return rows


def lines(name="lines", *, x, y, step=False, width=WIDTH, height=260, log_x=False):
    """Lines with their names at the right end. ``x`` and ``y`` are (field, title, domain).
    Rows: x and y fields, series, colour, dash (a number: 0 solid, 1 dashed, 2 dotted), label on the last point."""
    (xf, xt, xd), (yf, yt, yd) = x, y
    base = alt.Chart(alt.NamedData(name))
    kind = {"type": "log", "base": 2} if log_x else {}
    ex = alt.X(f"{xf}:Q", title=xt, scale=alt.Scale(domain=list(xd), nice=False, clamp=True, **kind))
    ey = axis_y(yf, yt, yd)
    line = base.mark_line(interpolate="step-after" if step else "linear").encode(
        x=ex, y=ey, detail="series:N", color=_own("colour"),
        strokeDash=alt.StrokeDash("dash:N", legend=None, scale=alt.Scale(domain=[0, 1, 2], range=[[1, 0], [6, 4], [2, 3]])))
    word = base.transform_filter("datum.label").mark_text(align="right", dy=-8, fontWeight="bold").encode(
        x=ex, y=ey, text="label:N", color=_own("colour"))
    return (line + word).properties(width=width, height=height)


def lines_rows(series, *, x, y):
    """Rows for :func:`lines`: ``series`` maps a name to (points, colour[, dash]); points are (x, y) pairs."""
    rows = []
    for label, (points, colour, *dash) in series.items():
        points = list(points)
        for i, (px, py) in enumerate(points):
            rows.append({x: px, y: py, "series": label, "colour": COLOURS.get(colour, colour),
                         "dash": dash[0] if dash else 0, "label": label if i == len(points) - 1 else ""})
    return rows


def ranks(name="ranks", *, count, domain, title, width=WIDTH, label_width=150):
    """Horizontal bars in ``count`` fixed places, best first; name left, figure at the bar's end."""
    slot = 26
    high = count * slot + 44
    base = alt.Chart(alt.NamedData(name)).encode(
        y=alt.Y("slot:O", axis=None, scale=alt.Scale(domain=list(range(count)), paddingInner=0.25)))
    ex = axis_x("value", title, domain, axis=alt.Axis(grid=True))
    bar = base.mark_bar().encode(x=ex, color=_own("colour"))
    figure = base.mark_text(align="left", dx=5).encode(x=ex, text="figure:N")
    word = base.mark_text(align="right", dx=-6, limit=label_width).encode(x=alt.value(0), text="name:N")
    return (bar + figure + word).properties(width=width, height=high)


def ranks_rows(items):
    """Rows for :func:`ranks`: (name, value, figure, meaning-or-colour), largest first."""
    items = sorted(items, key=lambda item: -item[1])
    return [{"slot": i, "name": n, "value": v, "figure": f, "colour": COLOURS.get(c, c)}
            for i, (n, v, f, c) in enumerate(items)]


_STRIP, _HEADING, _STRIP_TALL = 66, 18, 32


def strips(name="strips", *, count, limit, title, width=WIDTH, guess="guess"):
    """``count`` stacked bars under one another on one axis from 0 to ``limit``, a heading over each.
    A part is named in its bar where there is room, so let the heading name all. Rows: :func:`strips_rows`."""
    high = count * _STRIP + 8
    x = axis_x("start", title, (0, limit), axis=alt.Axis(orient="bottom", grid=False))
    parts = alt.Chart(alt.NamedData(name))
    bars = parts.mark_rect(stroke=_INK, strokeWidth=0.6, strokeOpacity=0.6).encode(
        x=x, x2="end:Q", y=_pixels("y", high), y2="y2:Q", color=_own("colour"),
        opacity=alt.Opacity("opacity:Q", scale=None), tooltip=["name:N", "figure:N"])
    names = parts.transform_filter("datum.shown").mark_text().encode(
        x=alt.X("middle:Q"), y=_pixels("my", high), text="name:N", color=_own("ink"))
    heads = alt.Chart(alt.NamedData(name + "-heads")).mark_text(align="left", baseline="top", fontWeight="bold").encode(
        x=alt.value(0), y=_pixels("y", high), text="text:N")
    layers, base = [bars, names, heads], alt.Chart(alt.NamedData(guess))
    layers.append(base.mark_rule(strokeDash=[5, 4], strokeWidth=2).encode(
        x=alt.X("value:Q"), y=_pixels("y", high), y2="y2:Q"))
    for side, want in (("left", "!datum.right"), ("right", "datum.right")):
        layers.append(base.transform_filter(want).mark_text(
            align=side, dx=5 if side == "left" else -5, fontStyle="italic", baseline="bottom").encode(
                x=alt.X("value:Q"), y=_pixels("y2", high), text="label:N"))
    return alt.layer(*layers).properties(width=width, height=high + 44)


def strips_rows(items, *, limit, name="strips", width=WIDTH):
    """Rows for :func:`strips`: ``items`` are (heading, start, parts), ``parts`` as in :func:`memory_bar_rows`;
    a part whose figure is "pale" may or may not be there and is drawn so.

    >>> rows = strips_rows([("one card", 0, [("weights", 15.0, "weights"), ("KV cache", 60, "kv")])], limit=80)
    >>> [(row["name"], row["start"], row["end"], row["shown"]) for row in rows["strips"]]
    [('weights', 0, 15.0, True), ('KV cache', 15.0, 75.0, True)]
    """
    per, out, heads = (width - 24) / limit, [], []
    for number, (heading, start, parts) in enumerate(items):
        top = number * _STRIP
        heads.append({"text": heading, "y": top + 2})
        for part, amount, meaning, *figure in parts:
            if amount <= 0:
                continue
            end = min(start + amount, limit)
            faint = meaning == "unused" or figure == ["pale"]
            out.append({
                "name": part, "figure": f"{amount:.2f} GiB", "start": start, "end": end, "middle": (start + end) / 2,
                "y": top + _HEADING, "y2": top + _HEADING + _STRIP_TALL, "my": top + _HEADING + _STRIP_TALL / 2,
                "colour": COLOURS[meaning], "opacity": 0.4 if faint else 1.0,
                "ink": _INK if faint else ink_on(COLOURS[meaning]), "shown": (end - start) * per >= 6.6 * len(part) + 8})
            start = end
    return {name: out, name + "-heads": heads}


def strips_guess(value, *, strip, limit, label="your guess"):
    """The row of a guess over bar number ``strip`` of :func:`strips`, or none."""
    if value is None:
        return []
    at = min(max(value, 0), limit)
    top = strip * _STRIP + _HEADING
    return [{"value": at, "label": label, "right": at > limit / 2, "y": top - 3, "y2": top + _STRIP_TALL + 15}]


def guess_rule(name="guess", *, axis="x", field="value"):
    """A dashed rule with a label where the reader's guess lies; layer it over a chart.
    The label keeps some of the page's ground around it, since it may lie on a bar. Rows: :func:`guess_rows`."""
    base = alt.Chart(alt.NamedData(name))
    along = alt.X(f"{field}:Q") if axis == "x" else alt.Y(f"{field}:Q")
    rule = base.mark_rule(strokeDash=[5, 4], strokeWidth=2).encode(**{axis: along})
    place = {"x": along, "y": alt.value(9)} if axis == "x" else {"y": along, "x": alt.value(6)}
    word = base.mark_text(align="left", dx=4, dy=0 if axis == "x" else -7, fontStyle="italic",
                          stroke="var(--kv-ground)", strokeWidth=4).encode(
        text="label:N", **place)
    return rule + word


def guess_rows(guess, *, field="value", label="your guess"):
    """The row of a guess, or none while there is no guess."""
    return [] if guess is None else [{field: guess, "label": label}]
