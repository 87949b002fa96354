"""Pictures of notebook 02: a memory bar, and a bar from its least to its most with the reader's guess."""

from __future__ import annotations

from functools import cache

import altair as alt

from kvlib import charts

MEMORY_TIERS = (16, 32, 64, 128, 200, 320)                                          # GiB
COUNT_TIERS = tuple(step * 10**power for power in range(6) for step in (4, 10, 25))  # requests
TOKEN_TIERS = (25_000, 100_000, 250_000, 500_000)


def tier(value: float, tiers) -> float:
    """The first of the fixed ends of an axis that takes the value, so that the axis rests while a slider moves.

    >>> tier(121.63, MEMORY_TIERS), tier(999, MEMORY_TIERS)
    (128, 320)
    """
    return next((end for end in tiers if value <= end), tiers[-1])


def memory_picture(parts, *, total_gib: float, words: str) -> charts.Static:
    """A still memory bar; ``parts`` as for :func:`kvlib.charts.memory_bar_rows`, ``words`` say what it shows."""
    limit = tier(total_gib, MEMORY_TIERS)
    spec = charts.themed(charts.memory_bar(limit=limit))
    spec["datasets"] = {"bar": charts.memory_bar_rows(parts, limit=limit)}
    return charts.static(spec, words)


@cache
def bar_spec(limit: float) -> dict:
    """A memory bar of one GPU; rows by :func:`bar_rows`."""
    return charts.themed(charts.memory_bar(limit=limit, title="GiB of one GPU", tiers=3))


def bar_rows(parts, limit: float) -> list[dict]:
    """Rows of a memory bar; a part whose fifth item is "pale" may or may not be there."""
    rows = charts.memory_bar_rows(parts, limit=limit, tiers=3)
    for row, part in zip(rows, parts, strict=True):
        if part[4:] == ("pale",):
            row |= {"opacity": 0.4, "ink": "currentColor"}
    return rows


@cache
def strips_spec(count: int, limit: float, title: str, guess: str = "guess") -> dict:
    """Stacked bars under one another on one axis; rows by :func:`kvlib.charts.strips_rows`."""
    return charts.themed(charts.strips(count=count, limit=limit, title=title, guess=guess))


@cache
def span_spec(limit: float, title: str, meaning: str = "kv") -> dict:
    """One bar from 0 on, paler between its least and its most, and the guess as a dashed rule; :func:`span_rows`."""
    x = charts.axis_x("start", title, (0, limit), axis=alt.Axis(grid=False))
    layers = [alt.Chart(alt.NamedData("span")).mark_rect(color=charts.COLOURS[meaning]).encode(
        x=x, x2="end:Q", y=alt.value(19), y2=alt.value(41), opacity=alt.Opacity("opacity:Q", scale=None))]
    for data, y, style in (("figure", 9, {"fontWeight": "bold"}), ("guess", 53, {"fontStyle": "italic"})):
        for side, want, dx in (("left", "!datum.right", 4), ("right", "datum.right", -4)):
            words = alt.Chart(alt.NamedData(data)).transform_filter(want).mark_text(align=side, dx=dx, **style)
            layers.append(words.encode(x=alt.X("value:Q"), y=alt.value(y), text="label:N"))
    layers.append(alt.Chart(alt.NamedData("guess")).mark_rule(strokeDash=[5, 4], strokeWidth=2).encode(
        x=alt.X("value:Q"), y=alt.value(15), y2=alt.value(60)))
    return charts.themed(alt.layer(*layers).properties(width=charts.WIDTH, height=106))


def span_rows(least: float, most: float, label: str, guess, limit: float, said: str = "your guess") -> dict:
    """Rows for :func:`span_spec`: the bar, its figure, and the guess if there is one."""
    def within(value):
        return min(max(value, 0), limit)

    def word(value, text):
        return {"value": within(value), "label": text, "right": value > limit / 2}

    rows = [{"start": 0, "end": within(least), "opacity": 1.0}]
    if most > least:
        rows.append({"start": within(least), "end": within(most), "opacity": 0.4})
    return {"span": rows, "figure": [word(most, label)], "guess": [] if guess is None else [word(guess, said)]}
