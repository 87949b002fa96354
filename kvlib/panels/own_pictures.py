"""Pictures of notebook 06: the memory of one GPU, requests by their length, which card, set-ups side by side."""

from __future__ import annotations

from functools import cache

import altair as alt

from kvlib import charts
from kvlib.fit import Fit
from kvlib.improve import CARDS, SPLITS, Cell
from kvlib.memory import at
from kvlib.panels.budget_pictures import budget_parts, tier
from kvlib.units import GiB

LENGTHS = (1_024, 131_072)       # tokens, the ends of the axis
REQUESTS = (0.25, 1_000)         # the ends of the axis
COLOUR = {"passes": "kv", "close": "kv", "refused": "refused", "unknown": "unused"}
OPACITY = {"passes": 1.0, "close": 0.4, "refused": 0.3, "unknown": 0.25}   # too close to call is pale, and says "?"
SIGN = {"passes": "", "close": "?", "refused": "✕", "unknown": "–"}
COMPARED = 6


def bar_parts(found: Fit) -> list[tuple]:
    """The parts of the memory bar, in GiB."""
    refused, terms = found.verdict.word == "refused", found.terms
    if "available" in terms and terms["available"].kind == "typed":
        left, total = terms["available"].value / GiB, at(found.memory.total_bytes, "typical") / GiB
        weights = at(found.memory.weights_bytes, "typical") / GiB
        return [("weights", min(weights, total), "weights", f"{weights:.2f} GiB"),
                ("KV cache", left, "refused" if refused else "kv", f"{left:.2f} GiB {terms['available'].kind}"),
                ("all else", max(0.0, total - weights - left), "unused", f"{max(0.0, total - weights - left):.2f} GiB")]
    reserve = terms.get("reserve") or terms["non_torch_bytes"]
    known = {"weights": terms["weights_bytes"].kind, "weights band": terms["weights_bytes"].kind,
             "reserve": "typed" if reserve.kind == "typed" else "measured"}
    if reserve.kind == "measured":
        known["reserve band"] = "measured"
    return budget_parts(found.memory, found.typical.plan.setup.gpu_memory_utilization, known, refused=refused)


# Requests at once, by their length


@cache
def lengths_spec() -> dict:
    """A band from the least to the most number of requests at once over their length; rows by :func:`lengths_rows`."""
    x = alt.X("tokens:Q", title="tokens each request takes", scale=alt.Scale(type="log", base=2, domain=list(LENGTHS), nice=False,
              clamp=True), axis=alt.Axis(values=[2**n for n in range(10, 18)], format="~s", labelExpr="datum.value / 1024 + 'K'"))
    y = alt.Scale(type="log", domain=list(REQUESTS), nice=False, clamp=True)
    axis = alt.Axis(values=[0.25, 1, 4, 10, 40, 100, 400, 1000], format="~g")
    band = alt.Chart(alt.NamedData("lengths"))
    rule = alt.Chart(alt.NamedData("own"))
    return charts.themed(alt.layer(
        band.mark_area(color=charts.COLOURS["kv"], opacity=0.45).encode(
            x=x, y=alt.Y("low:Q", title="requests at once", scale=y, axis=axis), y2="high:Q"),
        band.mark_line(color=charts.COLOURS["kv"]).encode(x=x, y=alt.Y("low:Q", scale=y)),
        band.mark_line(color=charts.COLOURS["kv"]).encode(x=x, y=alt.Y("high:Q", scale=y)),
        rule.mark_rule(strokeDash=[5, 4]).encode(x=x),
        rule.transform_filter("!datum.right").mark_text(align="left", dx=5, baseline="top").encode(
            x=x, y=alt.value(2), text="label:N"),
        rule.transform_filter("datum.right").mark_text(align="right", dx=-5, baseline="top").encode(
            x=x, y=alt.value(2), text="label:N"),
    ).properties(width=charts.WIDTH, height=230))


def lengths_rows(found: Fit, tokens: int) -> dict:
    """The band at powers of two up to ``max_model_len``, and the reader's own length as a rule."""
    longest = found.high.max_model_len
    points = sorted({*(2**n for n in range(10, 18) if 2**n <= longest), min(max(longest, LENGTHS[0]), LENGTHS[1])})
    rows = []
    if found.high.num_gpu_blocks > 0:
        for length in points:
            low, high = found.requests_of(min(length, longest))
            rows.append({"tokens": length, "low": max(low, REQUESTS[0]), "high": max(high, REQUESTS[0])})
    held = f"{found.say(*found.requests_of(tokens))} at once" if tokens <= longest and found.high.num_gpu_blocks else "not let in"
    return {"lengths": rows, "own": [{"tokens": tokens, "label": f"{tokens:,} tokens: {held}", "right": tokens > 8_192}]}


# Which card?


@cache
def map_spec() -> dict:
    """Cards by tensor_parallel_size; rows by :func:`map_rows`."""
    x = alt.X("split:O", title="tensor_parallel_size", sort=None, scale=alt.Scale(domain=[str(n) for n in SPLITS[:4]]),
              axis=alt.Axis(orient="top", labelAngle=0))
    y = alt.Y("gpu:N", title=None, sort=None, scale=alt.Scale(domain=list(CARDS)))
    base = alt.Chart(alt.NamedData("map"))
    colour = alt.Color("colour:N", scale=None, legend=None)
    return charts.themed(alt.layer(
        base.mark_rect(stroke="currentColor", strokeOpacity=0.25).encode(
            x=x, y=y, color=colour, opacity=alt.Opacity("opacity:Q", scale=None), tooltip=["gpu:N", "split:O", "says:N"]),
        base.mark_text(fontSize=11).encode(x=x, y=y, text="figure:N", color=alt.Color("ink:N", scale=None, legend=None)),
        base.transform_filter("datum.here").mark_rect(fillOpacity=0, stroke="currentColor", strokeWidth=2.5).encode(x=x, y=y),
    ).properties(width=charts.WIDTH, height=24 * len(CARDS) + 60))


def map_rows(cells: tuple[Cell, ...], found: Fit) -> dict:
    """Each cell's verdict as colour and sign, its requests at once as text; the set-up of the panel is framed."""
    rows = []
    card = found.typical.plan.setup.gpu
    for cell in cells:
        colour = charts.COLOURS[COLOUR[cell.word]]
        held = found.say(cell.low, cell.high) if cell.word in ("passes", "close") else ""
        rows.append({"gpu": cell.gpu, "split": str(cell.tensor_parallel_size), "colour": colour, "opacity": OPACITY[cell.word], "word": cell.word,
                     "figure": f"{held} {SIGN[cell.word]}".strip(), "ink": charts.ink_on(colour) if cell.word == "passes" else "currentColor",
                     "says": held or cell.reason[:120],
                     "here": card is not None and cell.gpu == card.name
                     and cell.tensor_parallel_size == found.engine.tensor_parallel_size})
    return {"map": rows}


# Side by side


@charts.made_once("limit")
def compare_spec(limit: float) -> dict:
    """Up to six set-ups, each from its least to its most requests; rows by :func:`compare_rows`."""
    base = alt.Chart(alt.NamedData("compare")).encode(
        y=alt.Y("slot:O", axis=None, scale=alt.Scale(domain=list(range(COMPARED)), paddingInner=0.35)))
    x = charts.axis_x("start", "requests of max_model_len at once", (0, limit), axis=alt.Axis(grid=True))
    bars = base.transform_filter("datum.end > datum.start").mark_bar(height=14, yOffset=8).encode(
        x=x, x2="end:Q", color=alt.Color("colour:N", scale=None, legend=None), opacity=alt.Opacity("opacity:Q", scale=None))
    words = base.transform_filter("datum.label").mark_text(align="left", baseline="bottom", dy=-1, limit=charts.WIDTH - 20).encode(
        x=alt.value(2), text="label:N")
    return charts.themed((bars + words).properties(width=charts.WIDTH, height=44 * COMPARED + 44))


def compare_rows(kept: list[tuple[str, Fit]]) -> tuple[dict, float]:
    """Rows for :func:`compare_spec`, and the end of its axis."""
    limit = tier(max([1.0, *(each.high.max_concurrency * 1.1 for _, each in kept)]), (2, 5, 10, 20, 50, 100, 250, 1000, 5000))
    rows = []
    for slot, (name, each) in enumerate(kept):
        low, high = (min(max(0.0, value), limit) for value in (each.low.max_concurrency, each.high.max_concurrency))
        colour = charts.COLOURS["refused" if each.verdict.word == "refused" else "kv"]
        label = f"{name} – {each.verdict.phrase}"
        rows += [{"slot": slot, "start": 0, "end": low, "colour": colour, "opacity": 1.0, "label": label},
                 {"slot": slot, "start": low, "end": high, "colour": colour, "opacity": 0.4, "label": ""}]
    return {"compare": rows}, limit
