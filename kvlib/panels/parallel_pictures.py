"""Pictures of the lesson on tensor parallelism: heads dealt to GPUs, and bars that are paler between least and most."""

from __future__ import annotations

from functools import cache

import altair as alt

from kvlib import charts
from kvlib.panels.drawing import box, canvas, word
from kvlib.units import KiB

W, GAP = charts.WIDTH, 6
TILES, BOX_TALL = (40, 32, 26, 20), 72   # pixels: tiles as large as the boxes allow
KIB_TIERS = (32, 128, 512)


@cache
def heads_spec() -> dict:
    """Sixteen places for GPUs with their tiles; rows by :func:`heads_rows`."""
    return charts.themed(canvas("gpus", height=2 * (BOX_TALL + GAP)))


def heads_rows(hands: list[list[int]], latent: bool) -> dict:
    """A box for each GPU and a tile for each KV head on it; a head dealt before is pale, a copy."""
    columns = min(len(hands), 8)
    tall = BOX_TALL if len(hands) > 8 else 2 * BOX_TALL + GAP
    wide = W / columns - GAP
    tile = next((each for each in TILES if _fits(len(hands[0]), each, wide, tall)), TILES[-1])
    per_row, size = max(1, int((wide - 10) // tile)), wide - 10 if latent else tile
    boxes, words, seen = [], [], set()
    for gpu, hand in enumerate(hands):
        left, top = gpu % columns * (wide + GAP) + 1, gpu // columns * (tall + GAP) + 1
        boxes.append(box(left, top, wide, tall - 2, "unused", opacity=0.12, tip=f"GPU {gpu}"))
        words.append(word(left + 6, top + 12, f"GPU {gpu}", size=11))
        for place, head in enumerate(hand):
            row, column = divmod(place, per_row)
            x, y, copy = left + 6 + column * tile, top + 23 + row * tile, head in seen
            what = "the whole latent row" if latent else f"KV head {head}"
            boxes.append(box(x, y, size - 2, tile - 2, "kv", opacity=0.35 if copy else 1.0,
                             tip=what + (", a copy" if copy else "")))
            text = ("row" if wide < 80 else "whole row") if latent else head
            words.append(word(x + (size - 2) / 2, y + tile / 2 - 1, text, align="center", size=12,
                              on=None if copy else "kv"))
        if seen.intersection(hand):
            words.append(word(left + 6, top + tall - 13, "a copy", size=11))
        seen.update(hand)
    return {"gpus": boxes, "gpus_words": words}


def _fits(heads: int, tile: int, wide: float, tall: int) -> bool:
    rows = -(-heads // max(1, int((wide - 10) // tile)))
    return 23 + rows * tile <= tall - 20


@charts.made_once("limit")
def price_spec(limit: int) -> dict:
    """Two bars in KiB a token: value ÷ N, and what vLLM keeps. Rows: prices (what, kib, figure, colour) and guess."""
    base = alt.Chart(alt.NamedData("prices"))
    x = charts.axis_x("kib", "KiB for one token, on each GPU", (0, limit))
    y = alt.Y("what:N", title=None, sort=None, scale=alt.Scale(domain=["value ÷ N", "vLLM keeps"], paddingInner=0.3))
    bars = base.mark_bar(stroke="currentColor", strokeWidth=0.7).encode(
        x=x, y=y, color=alt.Color("colour:N", scale=None, legend=None), opacity=alt.Opacity("opacity:Q", scale=None))
    figures = base.mark_text(align="left", dx=5, fontWeight="bold").encode(x=x, y=y, text="figure:N")
    return charts.themed((bars + figures + charts.guess_rule(field="kib")).properties(width=W, height=124))


def price_rows(divided: float, kept: int, guess) -> dict:
    """Rows for :func:`price_spec`, from bytes; the guess is in KiB."""
    return {"prices": [
        {"what": "value ÷ N", "kib": divided / KiB, "figure": f"{divided / KiB:.4g} KiB",
         "colour": charts.COLOURS["unused"], "opacity": 0.4},
        {"what": "vLLM keeps", "kib": kept / KiB, "figure": f"{kept / KiB:.4g} KiB",
         "colour": charts.COLOURS["refused" if kept > divided * 1.001 else "kv"], "opacity": 1.0}],
        "guess": charts.guess_rows(guess, field="kib")}


def kib_tier(n_bytes: int) -> int:
    return next(limit for limit in KIB_TIERS if n_bytes / KiB <= limit)


@charts.made_once("limit", "title")
def spans_spec(names: tuple[str, ...], limit: float, title: str) -> dict:
    """A bar a row from zero, paler between least and most, with a figure; ``mark`` rows are vertical lines with words."""
    y = alt.Y("row:N", title=None, sort=None, scale=alt.Scale(domain=list(names), paddingInner=0.25))
    x = charts.axis_x("start", title, (0, limit))
    base = alt.Chart(alt.NamedData("spans"))
    bars = base.mark_bar().encode(x=x, x2="end:Q", y=y, color=alt.Color("colour:N", scale=None, legend=None),
                                  opacity=alt.Opacity("opacity:Q", scale=None))
    layers = [bars]
    for side, want, dx in (("left", "!datum.right", 5), ("right", "datum.right", -5)):
        layers.append(alt.Chart(alt.NamedData("figures")).transform_filter(want).mark_text(
            align=side, dx=dx, fontWeight="bold").encode(
                x=alt.X("value:Q"), y=y, text="label:N", color=alt.Color("ink:N", scale=None, legend=None)))
    line = alt.Chart(alt.NamedData("marks"))
    layers.append(line.mark_rule(strokeWidth=1.2, strokeDash=[2, 3], opacity=0.7).encode(x=alt.X("value:Q")))
    layers.append(charts.guess_rule())
    return charts.themed(alt.layer(*layers).properties(width=W, height=58 + 30 * len(names)))


def spans_rows(items, limit: float, guess=None, marks=()) -> dict:
    """Rows for :func:`spans_spec`: ``items`` are (row, least, most, figure, meaning, opacity)."""
    spans, figures = [], []
    for row, least, most, figure, meaning, opacity in items:
        least, most = min(max(least, 0), limit), min(max(most, 0), limit)
        colour = charts.COLOURS[meaning]
        spans.append({"row": row, "start": 0, "end": least, "colour": colour, "opacity": opacity})
        if most > least:
            spans.append({"row": row, "start": least, "end": most, "colour": colour, "opacity": 0.4 * opacity})
        clear = max([most, *(mark for mark in marks if mark < most + 0.3 * limit)])   # words stand clear of a line
        right, wide, ink = clear > 0.62 * limit, (7 * len(figure) + 12) * limit / W, "currentColor"
        inside = least
        for mark in sorted(marks, reverse=True):
            inside = mark if inside - wide < mark < inside else inside
        if right and wide < inside and opacity == 1:
            clear, ink = inside, charts.ink_on(colour)    # wholly on the bar, before a line that would run through it
        figures.append({"row": row, "value": clear, "label": figure, "right": right, "ink": ink})
    return {"spans": spans, "figures": figures, "marks": [{"value": value} for value in marks],
            "guess": charts.guess_rows(None if guess is None else min(max(guess, 0), limit))}
