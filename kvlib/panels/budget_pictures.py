"""Pictures of notebook 02: a memory bar, and a bar from its least to its most with the reader's guess."""

from __future__ import annotations


import altair as alt

from kvlib import charts
from kvlib.memory import TERMS, MemoryBudget, at, requested_bytes
from kvlib.panels.budget_facts import interval
from kvlib.units import GiB

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


@charts.made_once("limit")
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


def budget_parts(memory: MemoryBudget, share: float, known: dict[str, str], *, refused: bool) -> list[tuple]:
    """A bar's parts in GiB: what is taken at least, what may be taken besides, what is left at least, and the rest.

    ``known`` says of "weights" and "reserve" how they are known where they are no bands.
    """
    total = at(memory.total_bytes, "typical") / GiB
    asked = requested_bytes(at(memory.total_bytes, "typical"), share) / GiB
    ends, parts = [memory.pick(side) for side in ("most", "least")], []
    for name, terms in (("weights", TERMS[:1]), ("reserve", TERMS[1:])):
        least, most = (sum(getattr(each, term) for term in terms) / GiB for each in ends)
        assumed = any(term in memory.assumed for term in terms)
        figure = f"{interval(least, most, 1)} GiB {known.get(name + ' band', 'assumed')}" if assumed else \
            f"{interval(least, most, 2)} GiB {known[name]}"
        least = max(least, 0.0)
        parts.append((name, least, name, figure))
        if most > least:
            parts.append(("", most - least, name, "", "pale"))
    left = asked - sum(part[1] for part in parts)
    if left < 0:
        return [*_cut(parts, asked), ("too much", -left, "refused", f"{-left:.1f} GiB{'' if refused else ' at most'}")]
    figure = f"{left:.1f} GiB at least" if memory.assumed else f"{left:.2f} GiB"
    return [*parts, ("KV cache", left, "refused" if refused else "kv", figure),
            ("not requested", total - asked, "unused", f"{total - asked:.2f} GiB")]


def _cut(parts, limit):
    """The parts up to ``limit``."""
    out, start = [], 0.0
    for name, amount, *more in parts:
        if start < limit:
            if start + amount > limit and more and more[-1] != "pale" and name:
                more = [more[0], f"{limit - start:.1f} of {more[1]}", *more[2:]]
            out.append((name, min(amount, limit - start), *more))
        start += amount
    return out


@charts.made_once("limit", "title")
def strips_spec(count: int, limit: float, title: str, guess: str = "guess") -> dict:
    """Stacked bars under one another on one axis; rows by :func:`kvlib.charts.strips_rows`."""
    return charts.themed(charts.strips(count=count, limit=limit, title=title, guess=guess))


@charts.made_once("limit", "title")
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
