"""Pictures of the lesson on traffic: a small pool and its turns, lengths as blocks, a pool over time, and the knee."""

from __future__ import annotations

from collections import Counter
from functools import cache

import altair as alt

from kvlib import charts
from kvlib.panels.budget_pictures import tier
from kvlib.panels.traffic_facts import LETTERS, WINDOW, Moment

W, INK = charts.WIDTH, "currentColor"
AT_ONCE = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)   # ends of axes, requests
BLOCKS = (32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 16_384)                # ends of axes, blocks
SHARES = (25, 50, 100, 125)                                                   # ends of axes, per cent
STEPS = (300, 600, 1_200, 2_400)
BINS, FASTEST, EVERY = 32, 150, 12   # bins of the histogram, requests a minute, steps to a point of a line
COLUMNS, CELL, MOST = 20, 26, 60     # the small pool
OWNER = dict(zip(LETTERS, charts.OWNERS, strict=True))


def _own(field="colour"):
    return alt.Color(f"{field}:N", scale=None, legend=None)


# The small pool

@cache
def pool_spec() -> dict:
    return charts.themed(charts.blocks("pool", count=MOST, columns=COLUMNS, cell=CELL))


@charts.made_once("last")
def turns_spec(last: int) -> dict:
    """A bar a request over the steps: pale while it waits, a cross where it was thrown out; a rule at the moment."""
    y = alt.Y("letter:N", title="request", sort=None, scale=alt.Scale(domain=list(LETTERS), paddingInner=0.3))
    x = charts.axis_x("start", "scheduler step", (0, last))
    bars = alt.Chart(alt.NamedData("turns")).mark_bar().encode(
        x=x, x2="end:Q", y=y, color=_own(), opacity=alt.Opacity("opacity:Q", scale=None), tooltip=["tip:N"])
    thrown = alt.Chart(alt.NamedData("thrown")).mark_point(
        shape="cross", angle=45, size=90, filled=True, color=INK, opacity=1).encode(x=alt.X("start:Q"), y=y, tooltip=["tip:N"])
    now = alt.Chart(alt.NamedData("now")).mark_rule(strokeWidth=2, strokeDash=[5, 3]).encode(x=alt.X("start:Q"))
    return charts.themed((bars + now + thrown).properties(width=W, height=190))


def small_rows(found: tuple[Moment, ...], at: int, usable: int, output: int) -> tuple[dict, int]:
    """Rows of both pictures at step ``at``, and where the axis of steps ends; ``output`` tokens make an answer, one a step."""
    last = tier(len(found), STEPS)
    moment = found[at] if at < len(found) else None
    owners = [letter for letter, blocks in (moment.holds if moment else ()) for _ in range(blocks)]
    cells = charts.blocks_rows(owners + [None] * (usable - len(owners)), columns=COLUMNS, cell=CELL, colours=OWNER)
    turns, thrown = [], []
    for letter in LETTERS:
        what = ["running" if any(letter == who for who, _ in each.holds) else "waiting" if letter in each.waiting else ""
                for each in found[:at + 1]]
        start = 0
        for t in range(1, len(what) + 1):
            if t == len(what) or what[t] != what[start]:
                if what[start]:
                    runs = what[start] == "running"
                    turns.append({"letter": letter, "start": start, "end": min(t, last), "opacity": 1.0 if runs else 0.3,
                                  "colour": OWNER[letter] if runs else charts.COLOURS["unused"],
                                  "tip": f"{letter} {'runs' if runs else 'waits'}, steps {start} to {t - 1}"})
                start = t
        if what and what[-1] == "running" and at < len(found) - 1:
            left = output - what.count("running")
            turns.append({"letter": letter, "start": at + 1, "end": min(at + 1 + left, last), "opacity": 0.3, "colour": OWNER[letter],
                          "tip": f"{letter}: {left} tokens to write"})
        thrown += [{"letter": letter, "start": t, "tip": f"{letter} is thrown out in step {t}"}
                   for t, each in enumerate(found[:at + 1]) if letter in each.thrown]
    return {"pool": cells, "turns": turns, "thrown": thrown, "now": [{"start": min(at, last)}]}, last


# Lengths as blocks

@charts.made_once("most", "share")
def lengths_spec(most: int, share: int) -> dict:
    """A histogram of blocks a request, with rules at the mean and the 95th percentile."""
    x = charts.axis_x("start", "blocks that a request holds at its end", (0, most))
    up_to_all = alt.Axis(labelExpr="datum.value > 100 ? '' : datum.label")
    y = charts.axis_y("share", "requests (%)", (0, share), axis=up_to_all)
    bars = alt.Chart(alt.NamedData("bins")).mark_rect(color=charts.COLOURS["kv"], stroke=INK, strokeOpacity=0.3).encode(
        x=x, x2="end:Q", y=y, y2=alt.datum(0), tooltip=["tip:N"])
    rules = alt.Chart(alt.NamedData("rules")).mark_rule(strokeWidth=1.6, strokeDash=[4, 3]).encode(x=alt.X("start:Q"))
    layers = [bars, rules, charts.guess_rule(field="start")]
    for side, want, dx in (("left", "!datum.right", 5), ("right", "datum.right", -5)):
        layers.append(alt.Chart(alt.NamedData("rules")).transform_filter(want).mark_text(
            align=side, dx=dx, baseline="top", fontWeight="bold").encode(x=alt.X("start:Q"), y=alt.Y("at:Q"), text="label:N"))
    return charts.themed(alt.layer(*layers).properties(width=W, height=190))


def lengths_rows(held, mean: float, p95: int, guess=None) -> tuple[dict, int, int]:
    """Rows of the histogram, and the ends of its axes."""
    most = tier(max(p95 * 1.25, 2), BLOCKS)
    wide = most / BINS
    counts = [0] * BINS
    for blocks, requests in Counter(held).items():
        counts[min(BINS - 1, int(blocks / wide))] += requests
    shares = [100 * count / len(held) for count in counts]
    top = tier(max(shares) * 1.15, SHARES)   # words stand above the bars
    bins = [{"start": i * wide, "end": (i + 1) * wide, "share": share,
             "tip": f"{share:.1f} % hold {i * wide:.0f} to {(i + 1) * wide:.0f} blocks" + (" or more" if i == BINS - 1 else "")}
            for i, share in enumerate(shares) if share]
    rules = [{"start": mean, "at": top, "label": f"mean {mean:,.0f}", "right": mean > most / 2},
             {"start": p95, "at": top * 0.88, "label": f"95th of a hundred: {p95:,}", "right": p95 > most / 2}]
    return {"bins": bins, "rules": rules,
            "guess": charts.guess_rows(None if guess is None else min(guess, most), field="start")}, most, top


# A pool over time

@cache
def occupancy_spec() -> dict:
    """Blocks in use, in per cent of the pool, and a mark for each step that threw somebody out."""
    x = charts.axis_x("step", "scheduler step", (0, WINDOW))
    area = alt.Chart(alt.NamedData("used")).mark_area(color=charts.COLOURS["kv"], opacity=0.75, interpolate="step-after").encode(
        x=x, y=charts.axis_y("share", "blocks in use (%)", (0, 118), axis=alt.Axis(values=[0, 25, 50, 75, 100])))
    full = alt.Chart(alt.NamedData("full")).mark_rule(strokeDash=[2, 3]).encode(y=alt.Y("share:Q"))
    thrown = alt.Chart(alt.NamedData("thrown")).mark_point(
        shape="triangle-down", size=70, filled=True, color=charts.COLOURS["refused"], opacity=1).encode(
        x=alt.X("step:Q"), y=alt.Y("share:Q"), tooltip=["tip:N"])
    words = alt.Chart(alt.NamedData("words")).mark_text(align="left", baseline="middle", fontWeight="bold").encode(
        x=alt.X("step:Q"), y=alt.Y("share:Q"), text="label:N")
    return charts.themed((area + full + thrown + words).properties(width=W, height=170))


def occupancy_rows(run) -> dict:
    usable, column = run.usable_blocks, run.series["used"]
    used = [{"step": at, "share": 100 * max(part) / usable} for at, part in _points(column)]
    by_step: dict[int, int] = {}
    for step, _ in run.preemption_events:
        by_step[step] = by_step.get(step, 0) + 1
    thrown = [{"step": step, "share": 108, "tip": f"step {step:,}: {count} thrown out"} for step, count in by_step.items()]
    words = [{"step": 12, "share": 110, "label": f"the pool: {usable:,} blocks"}]
    clash = any(step < 420 for step in by_step)
    if clash:
        words[0] |= {"share": 91}
    return {"used": used, "full": [{"share": 100}], "thrown": thrown, "words": words}


def _points(column: list[int]):
    """Every so many steps, the values since the point before; zeros where the run was over."""
    for at in range(0, WINDOW, EVERY):
        yield at, column[at:at + EVERY] or [0]
    yield WINDOW, column[WINDOW - EVERY:] or [0]


@charts.made_once("top")
def requests_spec(top: int) -> dict:
    """Requests running and waiting over the steps; dotted, what arithmetic and flags say."""
    x, y = charts.axis_x("step", "scheduler step", (0, WINDOW)), charts.axis_y("count", "requests", (0, top))
    lines = alt.Chart(alt.NamedData("lines")).mark_line(interpolate="step-after").encode(
        x=x, y=y, detail="series:N", color=_own(),
        strokeDash=alt.StrokeDash("dash:N", legend=None, scale=alt.Scale(domain=[0, 1], range=[[1, 0], [6, 4]])))
    limits = alt.Chart(alt.NamedData("limits"))
    rules = limits.mark_rule(strokeDash=[2, 3], opacity=0.8).encode(y=alt.Y("count:Q"))
    words = limits.mark_text(align="left", baseline="bottom", dy=-2).encode(x=alt.value(110), y=alt.Y("count:Q"), text="label:N")
    names = alt.Chart(alt.NamedData("names")).mark_text(align="right", baseline="bottom", dy=-3, fontWeight="bold").encode(
        x=alt.value(W - 70), y=alt.Y("count:Q"), text="label:N")
    return charts.themed((rules + lines + words + names).properties(width=W, height=190))


def requests_rows(run, limits: list[tuple[str, float]]) -> tuple[dict, int]:
    """Rows of that picture, and where its axis ends; of the ``limits`` those are drawn that lie within and apart."""
    top = tier(1.25 * max(8, run.peak_running, *run.series["waiting"]), AT_ONCE)
    lines = []
    for series, colour, dash in (("running", "kv", 0), ("waiting", "reserve", 1)):
        lines += [{"step": at, "count": max(part), "series": series, "colour": charts.COLOURS[colour], "dash": dash}
                  for at, part in _points(run.series[series])]
    names = []
    for name in ("running", "waiting"):
        column = run.series[name]
        end = max(column[1_130:1_330] or [0])   # where the word stands
        names.append({"count": end, "label": name})
    low, high = sorted(names, key=lambda each: each["count"])
    if high["count"] - low["count"] < top / 9:
        high["count"] = low["count"] + top / 9
    shown = []
    for label, value in sorted(limits, key=lambda each: each[1]):
        beside = [column for name in ("running", "waiting") for column in run.series[name][300:560]]   # where the words stand
        clear = all(abs(value - each["count"]) > top / 10 for each in shown) and not any(value < each < value + top / 9 for each in beside)
        if value <= top * 0.97 and clear:
            shown.append({"count": value, "label": label})
    return {"lines": lines, "names": names, "limits": shown}, top


@charts.made_once("top")
def knee_spec(top: int) -> dict:
    """Requests at once over their rate: what arithmetic says, the knee, and where the simulation stands."""
    x, y = charts.axis_x("rate", "requests a minute", (0, FASTEST)), charts.axis_y("count", "running at once", (0, top))
    curve = alt.Chart(alt.NamedData("curve")).mark_line(color=charts.COLOURS["weights"]).encode(x=x, y=y)
    rules = alt.Chart(alt.NamedData("knee")).mark_rule(strokeDash=[2, 3]).encode(x=alt.X("rate:Q"))
    worst = alt.Chart(alt.NamedData("worst")).mark_rule(strokeDash=[6, 4], color=charts.COLOURS["refused"]).encode(y=alt.Y("count:Q"))
    dot = alt.Chart(alt.NamedData("dot")).mark_point(filled=True, size=130, color=charts.COLOURS["kv"], opacity=1, stroke=INK).encode(
        x=alt.X("rate:Q"), y=alt.Y("count:Q"), tooltip=["label:N"])
    layers = [curve, rules, worst, dot]
    for side, want, dx in (("left", "!datum.right", 8), ("right", "datum.right", -8)):
        layers.append(alt.Chart(alt.NamedData("says")).transform_filter(want).mark_text(
            align=side, dx=dx, dy=alt.expr("datum.dy"), fontWeight="bold").encode(
            x=alt.X("rate:Q"), y=alt.Y("count:Q"), text="label:N"))
    layers.append(charts.guess_rule(field="rate"))
    return charts.themed(alt.layer(*layers).properties(width=W, height=190))


def knee_rows(found, knee: float, rate: float, running: float, guess=None) -> tuple[dict, int]:
    """Rows of that picture and the end of its axis; ``knee`` and ``rate`` are requests a minute."""
    flat = found.rate_knee * found.steps_mean
    edge = min(knee, FASTEST)
    top = tier(1.2 * max(10, flat * edge / knee, running, found.concurrency_worst), AT_ONCE)
    curve = [{"rate": 0, "count": 0}, {"rate": edge, "count": flat * edge / knee}]
    limit = {"pool": "pool full", "tokens": "token budget used up", "seqs": "max_num_seqs reached"}[found.limit]
    rows = {"curve": curve, "knee": [], "says": []}
    if knee < FASTEST:
        curve.append({"rate": FASTEST, "count": flat})
        rows["knee"] = [{"rate": knee}]
        rows["says"] = [{"rate": knee, "count": top, "label": f"{limit}: {knee:,.0f} a minute", "right": knee > FASTEST * 0.6, "dy": 7}]
    at = min(rate, FASTEST)
    rows["dot"] = [{"rate": at, "count": running, "label": f"simulated: {running:,.1f} at {rate:g} a minute"}]
    rows["says"].append({"rate": at, "count": running, "label": f"simulated {running:,.0f}", "right": at > FASTEST * 0.75, "dy": 14})
    rows["worst"] = [{"count": found.concurrency_worst}]
    rows["says"].append({"rate": FASTEST, "count": found.concurrency_worst, "right": True, "dy": -8,
                         "label": f"printed worst case {found.concurrency_worst:,.2f}"})
    rows["guess"] = charts.guess_rows(None if guess is None else min(guess, FASTEST), field="rate")
    return rows, top


def knee_picture(found, step, rates, running, preemptions) -> charts.Static:
    """A still picture: arithmetic as a line, and for each rate a dot, how many ran in the simulation, with its preemptions below."""
    a_minute = 60 / step.seconds
    knee, flat = found.rate_knee * a_minute, found.rate_knee * found.steps_mean
    last = tier(max(rates), (60, FASTEST, 300, 600, 1_200))
    top = tier(1.2 * max(flat, *running), AT_ONCE)
    x, y = charts.axis_x("rate", "requests a minute", (0, last)), charts.axis_y("count", "running at once, on average", (0, top))
    line = [{"rate": 0, "count": 0}, {"rate": knee, "count": flat}, {"rate": last, "count": flat}]
    dots = [{"rate": rate, "count": count, "out": f"{out:,}"} for rate, count, out in zip(rates, running, preemptions, strict=True)]
    words = [{"rate": knee, "count": top, "label": f"the knee: {knee:,.0f} a minute"}]
    worst = [{"count": found.concurrency_worst, "rate": last, "label": f"printed worst case {found.concurrency_worst:,.2f}"}]
    drawn = alt.layer(
        alt.Chart(alt.Data(values=line)).mark_line(color=charts.COLOURS["weights"]).encode(x=x, y=y),
        alt.Chart(alt.Data(values=words)).mark_rule(strokeDash=[2, 3]).encode(x=alt.X("rate:Q")),
        alt.Chart(alt.Data(values=words)).mark_text(align="left", dx=6, dy=8, fontWeight="bold").encode(
            x=alt.X("rate:Q"), y=alt.Y("count:Q"), text="label:N"),
        alt.Chart(alt.Data(values=worst)).mark_rule(strokeDash=[6, 4], color=charts.COLOURS["refused"]).encode(y=alt.Y("count:Q")),
        alt.Chart(alt.Data(values=worst)).mark_text(align="right", dx=-4, dy=-8, fontWeight="bold").encode(
            x=alt.X("rate:Q"), y=alt.Y("count:Q"), text="label:N"),
        alt.Chart(alt.Data(values=dots)).mark_point(
            filled=True, size=90, color=charts.COLOURS["kv"], opacity=1, stroke=INK).encode(x=x, y=y),
        alt.Chart(alt.Data(values=dots)).mark_text(dy=15, fontSize=11).encode(x=x, y=y, text="out:N")).properties(width=W, height=260)
    said = ", ".join(f"{count:.0f} at {rate:g}" for rate, count in zip(rates, running, strict=True))
    return charts.static(drawn, alt=f"By arithmetic {flat:.0f} run from {knee:.0f} requests a minute on. Simulated, running: {said}. "
                                    f"Below each dot its preemptions.")
