"""Notebook 91: one sweep over everything, its heat map and Pareto line, and how fast the engine is, from a benchmark on file."""

from __future__ import annotations

import json

import altair as alt
import pandas as pd

from kvlib import catalog, charts
from kvlib.panels.own_pictures import COLOUR, OPACITY, SIGN
from kvlib.panels.question_base import right
from kvlib.sweep import heat_map, pareto
from kvlib.tables import Col, Table, table
from kvlib.units import GiB

SPLITS = (1, 2, 4, 8)
WORD = {"passes": "passes", "too close to call": "close", "fails": "refused"}     # a sweep's verdicts in the words of 06


def answers_table(frame: pd.DataFrame) -> Table:
    """How many set-ups each card passes, leaves open and fails, over the splits."""
    rows = []
    for card in frame["gpu"].cat.categories if hasattr(frame["gpu"], "cat") else frame["gpu"].unique():
        row = {"gpu": card, "gib": catalog.gpu(card).total_bytes / GiB}
        for split in SPLITS:
            cell = frame[(frame["gpu"] == card) & (frame["tensor_parallel_size"] == split)]["verdict"].value_counts()
            row[str(split)] = f"{cell.get('passes', 0)} + {cell.get('too close to call', 0)} ?"
        rows.append(row)
    return right(table(rows, [Col("gpu", "GPU", "text"), Col("gib", "memory", ".2f", "GiB"),
                              *(Col(str(split), f"{split} GPU{'s' * (split > 1)}") for split in SPLITS)],
                       caption="Set-ups that pass, and (?) that are too close to call before a launch"))


def reasons_table(frame: pd.DataFrame) -> Table:
    """Why rows do not pass, figures and names left out: how many, and one of them."""
    off = frame[frame["verdict"].astype(object) != "passes"]
    kinds = off["outcome"].astype(object).where(off["verdict"].astype(object) != "too close to call", "too close to call")
    rows = []
    for kind, count in kinds.value_counts().items():
        one = off[kinds == kind].iloc[0]
        rows.append({"kind": kind, "count": count, "where": f"{one['model']}, {one['gpu']} × {one['tensor_parallel_size']}",
                     "reason": "passes at the least reserve, not at the most" if kind == "too close to call" else one["reason"]})
    return table(rows, [Col("kind", "outcome", "text"), Col("count", "rows"), Col("where", "the first", "text"), Col("reason", "reason", "text")],
                 caption="Rows that do not surely pass")


def heat_picture(frame: pd.DataFrame) -> charts.Static:
    """GPUs × tensor-parallel sizes of one model at one length: requests at once, as a range."""
    cells = heat_map(frame)
    rows = []
    for cell in cells.itertuples():
        if not isinstance(cell.verdict, str):
            continue
        word = WORD[cell.verdict]
        colour = charts.COLOURS[COLOUR[word]]
        held = "" if word == "refused" else f"{_short(max(0, cell.max_concurrency_low))} to {_short(cell.max_concurrency_high)}"
        rows.append({"gpu": cell.gpu, "split": str(cell.tensor_parallel_size), "colour": colour, "opacity": OPACITY[word],
                     "ink": charts.ink_on(colour) if word == "passes" else "currentColor", "label": f"{held} {SIGN[word]}".strip()})
    cards = list(dict.fromkeys(row["gpu"] for row in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("split:N", title="--tensor-parallel-size", sort=[str(split) for split in SPLITS],
                axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("gpu:N", title=None, sort=cards, axis=alt.Axis(minExtent=110)))
    tiles = base.mark_rect(stroke="currentColor", strokeWidth=0.5, strokeOpacity=0.5).encode(
        color=alt.Color("colour:N", scale=None, legend=None), opacity=alt.Opacity("opacity:Q", scale=None))
    words = base.mark_text(fontSize=12).encode(text="label:N", color=alt.Color("ink:N", scale=None, legend=None))
    said = "; ".join(f"{row['gpu']} × {row['split']}: {'refused' if row['label'] == '✕' else row['label']}" for row in rows)
    return charts.static((tiles + words).properties(width=520, height=26 * len(cards)), alt=f"Requests at once: {said}.")


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"


def _front(frame: pd.DataFrame) -> pd.DataFrame:
    seen = frame[frame["verdict"] == "passes"]
    return pareto(seen, requests="max_concurrency_low")


def pareto_table(frame: pd.DataFrame) -> Table:
    """The set-ups of the line, by rising memory."""
    rows = [{"set": f"{row.num_gpus} × {row.gpu}", "gib": row.gpus_bytes / GiB,
             "requests": f"{_short(row.max_concurrency_low)} to {_short(row.max_concurrency_high)}"} for row in _front(frame).itertuples()]
    return right(table(rows, [Col("set", "GPUs", "text"), Col("gib", "memory of all", ",.0f", "GiB"), Col("requests", "requests at once")],
                       caption="Nothing holds as many with less"))


def pareto_picture(frame: pd.DataFrame) -> charts.Static:
    """Memory of all GPUs of a set-up against the requests it surely holds; the line joins those that nothing beats."""
    best = _front(frame)

    def points(some):
        return [{"gib": row.gpus_bytes / GiB, "requests": row.max_concurrency_low, "name": f"{row.num_gpus} × {row.gpu}"}
                for row in some.itertuples()]

    rows, line = points(frame[frame["verdict"] == "passes"].drop(best.index)), points(best)
    lowest = 0.0
    for row in line:                       # a label where the one before leaves room; all names stand in the table
        row["label"] = row["name"] if row["requests"] > lowest else ""
        lowest = row["requests"] * 1.25 if row["label"] else lowest
    most_x, most_y = (max(row[key] for row in (*rows, *line)) for key in ("gib", "requests"))
    x = alt.X("gib:Q", title="memory of all GPUs of the set-up (GiB; logarithmic)",
              scale=alt.Scale(type="log", domain=[10, most_x * 1.3], nice=False), axis=alt.Axis(values=[10, 20, 50, 100, 200, 500, 1000], format="~g"))
    y = alt.Y("requests:Q", title="requests at once, at least (logarithmic)",
              scale=alt.Scale(type="log", domain=[1, most_y * 1.4], nice=False, clamp=True),
              axis=alt.Axis(values=[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], format="~g"))
    others = alt.Chart(alt.Data(values=rows)).mark_point(filled=True, size=36, opacity=0.8, color=charts.COLOURS["unused"]).encode(x=x, y=y)
    front = alt.Chart(alt.Data(values=line))
    steps = front.mark_line(color=charts.COLOURS["kv"]).encode(x=x, y=y)
    marks = front.mark_point(filled=True, size=60, color=charts.COLOURS["kv"], shape="diamond").encode(x=x, y=y)
    words = front.mark_text(align="right", dx=-9, dy=0, fontSize=11).encode(x=x, y=y, text="label:N")
    said = "; ".join(f"{row['name']}: {row['gib']:.0f} GiB, {_short(row['requests'])} requests" for row in line)
    return charts.static((others + steps + marks + words).properties(width=620, height=340),
                         alt=f"Diamonds, which nothing beats: {said}. {len(rows)} others, as dots, lie below the line.")


# How fast


def benchmark(date: str) -> dict:
    """A run of ``python run.py bench``, as it was written to ``data/benchmarks``."""
    return json.loads((catalog.data_dir() / "benchmarks" / f"{date}.json").read_text(encoding="utf-8"))


def others(run: dict) -> list[dict]:
    """Time of one set-up, each way that was timed: who, seconds and their spread, by model."""
    found = []
    for figure in run["figures"]:
        name = figure["name"]
        if ", one set-up, " in name:
            who, model = name.split(", one set-up, ")
        elif name.startswith("size(), a "):
            who, model = name.rsplit(", ", 1)
        elif name.startswith("sweep(), lengths × memories, "):
            who, model = "a row of sweep()", name.rsplit(", ", 1)[1]
            figure = {**figure, "median": 1 / figure["median"], "low": 1 / figure["high"], "high": 1 / figure["low"]}
        else:
            continue
        found.append({"who": who, "model": model, **{key: figure[key] for key in ("median", "low", "high")}})
    return found


def speed_picture(run: dict, model: str = "Qwen3-8B") -> charts.Static:
    """Microseconds for one set-up, each way, on a scale of powers of ten."""
    rows = sorted((row for row in others(run) if row["model"] == model), key=lambda row: -row["median"])
    data = [{"who": row["who"], "start": 0.1, "us": row["median"] * 1e6, "label": f"{_digits(row['median'] * 1e6)} µs",
             "colour": charts.COLOURS["kv" if "()" in row["who"] else "unused"]} for row in rows]
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y("who:N", title=None, sort=[row["who"] for row in data], axis=alt.Axis(minExtent=170, labelLimit=230)))
    x = alt.X("start:Q", title="microseconds for one set-up (each line: ten times more)",
              scale=alt.Scale(type="log", domain=[0.1, 20_000], nice=False), axis=alt.Axis(values=[0.1, 1, 10, 100, 1_000, 10_000], format="~g"))
    bars = base.mark_bar(height=18).encode(x=x, x2="us:Q", color=alt.Color("colour:N", scale=None, legend=None))
    words = base.mark_text(align="left", dx=5).encode(x=alt.X("us:Q"), text="label:N")
    said = "; ".join(f"{row['who']}: {row['label']}" for row in data)
    return charts.static((bars + words).properties(width=520, height=30 * len(data)), alt=f"One set-up of {model}. {said}.")


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def growth_picture(run: dict) -> charts.Static:
    """How time grows with size: each curve beside its exponent, both axes in powers of ten."""
    data = [{"name": f"{curve['name']}: exponent {curve['exponent']:.2f}", "size": size, "ms": seconds * 1e3}
            for curve in run["growth"] for size, seconds in curve["points"]]
    names = list(dict.fromkeys(row["name"] for row in data))
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("size:Q", title="layers, groups, rows or characters", scale=alt.Scale(type="log", domain=[10, 2e7], nice=False),
                axis=alt.Axis(values=[10**n for n in range(1, 8)], format="~s")),
        y=alt.Y("ms:Q", title="milliseconds", scale=alt.Scale(type="log", domain=[0.05, 3_000], nice=False),
                axis=alt.Axis(values=[0.1, 1, 10, 100, 1_000], format="~g")),
        color=alt.Color("name:N", scale=alt.Scale(domain=names, range=[charts.COLOURS[key] for key in ("kv", "state", "window", "reserve")]),
                        legend=alt.Legend(columns=2, labelLimit=320)),
        shape=alt.Shape("name:N", scale=alt.Scale(domain=names)))
    said = "; ".join(names)
    return charts.static((base.mark_line() + base.mark_point(filled=True, size=40)).properties(width=560, height=260),
                         alt=f"Time over size: {said}.")


def figures_table(run: dict) -> Table:
    """Every figure of a run, with its quartiles."""
    rows = []
    for figure in run["figures"]:
        scale, unit = {"s": (1e6, "µs")}.get(figure["unit"], (1, figure["unit"]))
        rows.append({"name": figure["name"], "median": _digits(figure["median"] * scale), "unit": unit,
                     "spread": f"{_digits(figure['low'] * scale)} to {_digits(figure['high'] * scale)}"})
    return right(table(rows, [Col("name", "what", "text"), Col("median"), Col("unit", "unit", "text"), Col("spread", "half of the samples from … to …")],
                       caption=f"{run['machine']['cores']} cores, {run['machine']['processor']}, load at start {run['machine']['load_at_start']}; {run['date']}"))
