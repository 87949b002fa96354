"""Pictures of the lesson on a token's price: boxes, lines and words in pixels, and its two static charts."""

from __future__ import annotations

import altair as alt

from kvlib import charts
from kvlib.panels.token_facts import priced_models, shortcut_rows
from kvlib.tables import gib
from kvlib.units import KiB

W, KV, INK = charts.WIDTH, charts.COLOURS["kv"], "currentColor"


def x_at(field):
    """An x in pixels; it stretches with the picture."""
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[0, W], nice=False), axis=None)


def y_at(field, height):
    """A y in pixels, downwards."""
    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0, height], range=[0, height], nice=False), axis=None)


def pixels(height, *, boxes, lines, words):
    """A picture in pixels; the three names are those of its rows, made by :func:`box`, :func:`line`, :func:`word`."""
    place = {"x": x_at("x"), "x2": "x2:Q", "y": y_at("y", height), "y2": "y2:Q"}
    faint = alt.Opacity("opacity:Q", scale=None)
    dash = alt.StrokeDash("dash:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[[1, 0], [4, 3]]))
    rects = alt.Chart(alt.NamedData(boxes)).mark_rect(stroke=INK, strokeOpacity=0.4, strokeWidth=0.5).encode(
        **place, color=alt.Color("colour:N", scale=None, legend=None), opacity=faint)
    rules = alt.Chart(alt.NamedData(lines)).mark_rule().encode(**place, strokeDash=dash, opacity=faint)
    parts, base = [rects, rules], alt.Chart(alt.NamedData(words))
    for align in ("left", "right"):
        for weight in ("normal", "bold"):
            only = base.transform_filter(f"datum.align == '{align}' && datum.weight == '{weight}'")
            parts.append(only.mark_text(align=align, baseline="middle", fontWeight=weight).encode(
                x=x_at("x"), y=y_at("y", height), text="text:N"))
    return alt.layer(*parts).properties(width=W, height=height)


def box(x, y, wide, tall, colour=KV, opacity=1.0):
    """The row of a filled box."""
    return {"x": x, "x2": x + wide, "y": y, "y2": y + tall, "colour": colour, "opacity": opacity}


def line(x, y, x2, y2, dash=0, opacity=0.6):
    """The row of a line; ``dash`` 1 breaks it."""
    return {"x": x, "y": y, "x2": x2, "y2": y2, "dash": dash, "opacity": opacity}


def word(x, y, text, align="left", weight="normal"):
    """The row of a word, centred on ``y``."""
    return {"x": x, "y": y, "text": text, "align": align, "weight": weight}


def kib_bar(limit, title="KiB for one token", height=86):
    """A bar in KiB from zero, with the guess over it. Rows: bar (value, figure) and guess."""
    base = alt.Chart(alt.NamedData("bar"))
    x = charts.axis_x("value", title, (0, limit))
    bar = base.mark_bar(color=KV, height=22).encode(x=x, y=alt.value(30))
    figure = base.mark_text(align="left", dx=6, fontWeight="bold").encode(x=x, y=alt.value(30), text="figure:N")
    return (bar + figure + charts.guess_rule()).properties(width=W, height=height)


def kib_rows(n_bytes, guess):
    """Rows for :func:`kib_bar`; the guess is in KiB."""
    return {"bar": [{"value": n_bytes / KiB, "figure": gib(n_bytes)}], "guess": charts.guess_rows(guess)}


def shortcut_chart():
    """How far a price by hidden_size // num_attention_heads is from the one by the config's own head_dim."""
    rows = [{"model": row["model"], "error": row["error"], "figure": f"{row['error']:+.0f} %".replace("-", "−")}
            for row in shortcut_rows()]
    base, red = alt.Chart(alt.Data(values=rows)), charts.COLOURS["refused"]
    x = charts.axis_x("error", "error of the price, per cent", (-90, 50))
    y = alt.Y("model:N", title=None, sort=None, axis=alt.Axis(labelLimit=200, labelPadding=8, minExtent=175))
    bars = base.mark_bar(height=11, color=red).encode(x=x, y=y)
    zero = alt.Chart(alt.Data(values=[{"error": 0}])).mark_rule(strokeWidth=1.2).encode(x=alt.X("error:Q"))
    text = [base.transform_filter(side).mark_text(align=align, dx=dx).encode(x=x, y=y, text="figure:N")
            for side, align, dx in (("datum.error < 0", "right", -4), ("datum.error > 0", "left", 4))]
    chart = alt.layer(bars, zero, *text).properties(width=600, height=56 + 18 * len(rows))
    first, last = rows[0], rows[-1]
    return charts.static(chart, f"Bars to both sides of zero for {len(rows)} models, from {first['figure']} "
                                f"({first['model']}) to {last['figure']} ({last['model']}).")


_KINDS = {  # kind of model: mark, colour
    "full attention": ("circle", KV), "latent": ("diamond", KV),
    "with windows or chunks": ("triangle-up", charts.COLOURS["window"]),
    "with states": ("square", charts.COLOURS["state"])}
_NAMED = {  # models named in the chart, and where their names stand beside the mark
    "Qwen3-8B": (-9, -15), "Llama-2-7b": (-8, -8), "Llama-3.1-405B": (8, -8), "Command-R-35B": (8, 0),
    "Qwen2.5-0.5B": (2, -13), "Qwen3-235B-A22B": (8, 10), "GLM-4.5": (8, 6), "Qwen3-0.6B": (2, -13),
    "DeepSeek-V3": (-9, 9), "Kimi-K3": (-2, -13), "gpt-oss-120b": (9, 0), "Qwen3.8-27B": (-8, -9),
    "Nemotron-3-Nano-30B-A3B": (9, 4), "Llama-3.1-8B": (12, 6)}


def price_chart():
    """The price of a token against the size of the model, for the whole catalogue."""
    rows, kinds = priced_models(), list(_KINDS)
    base = alt.Chart(alt.Data(values=rows))
    x = alt.X("billions:Q", title="parameters, billions (each line: ten times more)",
              scale=alt.Scale(type="log", domain=[0.4, 4000], nice=False),
              axis=alt.Axis(values=[1, 10, 100, 1000], tickCount=20, format=","))
    y = alt.Y("kib:Q", title="KiB for one more token (each line: twice as much)",
              scale=alt.Scale(type="log", base=2, domain=[3, 2048], nice=False),
              axis=alt.Axis(values=[2**k for k in range(2, 12)], tickCount=20, labelOverlap=False, format=",",
                            titlePadding=12))
    key = {"legend": alt.Legend(title=None, columnPadding=26)}
    colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[_KINDS[k][1] for k in kinds]), **key)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=[_KINDS[k][0] for k in kinds]), **key)
    parts = [base.mark_point(filled=True, size=55, opacity=0.85).encode(x=x, y=y, color=colour, shape=shape)]
    for row in rows:
        if row["model"] in _NAMED:
            dx, dy = _NAMED[row["model"]]
            name = alt.Chart(alt.Data(values=[row])).mark_text(
                align="left" if dx > 0 else "right", dx=dx, dy=dy, fontSize=11)
            parts.append(name.encode(x=x, y=y, text="model:N"))
    chart = alt.layer(*parts).properties(width=680, height=430)
    cheap, dear = min(rows, key=lambda row: row["kib"]), max(rows, key=lambda row: row["kib"])
    return charts.static(chart, f"{len(rows)} models by size and price of a token, from {cheap['model']} "
                                f"({cheap['kib']:,.0f} KiB) to {dear['model']} ({dear['kib']:,.0f} KiB).")
