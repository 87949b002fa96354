"""Notebook 10's tables: the five formulas, what named tools answered and why, and a tool of your own."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from kvlib import catalog, charts
from kvlib.capacity import size
from kvlib.config import load_model
from kvlib.controls import Col, html, table
from kvlib.engine import Engine
from kvlib.formulas import FORMULAS, WORDS, counted, ours
from kvlib.panels.question_base import right as aligned
from kvlib.slips import diagnose
from kvlib.tables import Html, Table
from kvlib.units import GiB, MiB

MODELS = ("Qwen3-8B", "Qwen3-30B-A3B", "gpt-oss-120b", "DeepSeek-V3", "Qwen3.5-27B", "Gemma-4-31B", "Nemotron-3-Nano-30B-A3B")
NAMES = {
    "ours": "layer by layer (ours)",
    "attention_heads": "attention heads as KV heads",
    "hidden_over_heads": "head_dim = hidden / heads",
    "mla_as_heads": "MLA as heads",
    "every_layer": "every layer in full",
}
SHORT = {"Nemotron-3-Nano-30B-A3B": "Nemotron-3-Nano"}


def times(value: float, kept: float) -> str:
    """How many times: two figures below one, one digit above.

    >>> times(8, 1), times(1, 2), times(1.006, 1)
    ('8.0x', '0.50x', '1.01x')
    """
    ratio = value / kept
    return f"{ratio:.1f}x" if ratio >= 1.5 else f"{ratio:.2f}x"


def formulas_table(models=MODELS) -> Table:
    """Bytes of one more token by each formula; what is off stands bold, with how far."""
    rows = []
    for name in models:
        right = ours(name)
        row = {"model": name}
        for key, formula in FORMULAS.items():
            each = formula(name).per_token
            row[key] = (
                f"{each:,}" if each == right.per_token else html("<b>{}</b> ({})", f"{each:,}", times(each, right.per_token))
            )
        rows.append(row | {"fixed": f"{right.fixed / MiB:,.1f} MiB" if right.fixed else "–"})
    return aligned(
        table(
            [{key: Html(value) if key != "model" else value for key, value in row.items()} for row in rows],
            [
                Col("model", fmt="text"),
                *(Col(key, name) for key, name in NAMES.items()),
                Col("fixed", "and once a request (ours)"),
            ],
            caption="Bytes of one more token, 16-bit cache, whole model; bold where a slip shows",
        )
    )


def tools_table(mine: Mapping[str, object] | None = None, name: str = "my tool") -> Table:
    """What each tool says, as times what vLLM keeps; ``mine`` adds a tool: figures for one more token, by model."""
    rows: dict[tuple, dict] = {}
    for row in catalog.table("peers.csv"):
        if row["unit"] != "B/token" or row["model"] not in MODELS or "left out" in row["setting"]:
            continue
        tool = f"{row['tool']} {row['version']}" + (", its model curve" if "curve" in row["setting"] else "")
        said = row["times_vllm"] or row["said"]
        rows.setdefault((tool,), {"tool": tool})[row["model"]] = (
            Html(f"<b>{said}</b>") if row["times_vllm"] not in ("1.0", "") else Html(said)
        )
    shown = list(rows.values())
    if mine:
        own = {"tool": name}
        for model, figure in mine.items():
            found = diagnose(model, figure)
            own[catalog.model_name(model)] = Html("1.0" if found.agrees else f"<b>{found.ratio:.2f}</b>")
        shown.append(own)
    return aligned(
        table(
            shown,
            [Col("tool", fmt="text"), *(Col(model, SHORT.get(model, model)) for model in MODELS)],
            highlight=len(shown) - 1 if mine else None,
            caption="Their bytes of one more token ÷ what vLLM keeps, 29 November 2026; – was not asked",
        )
    )


def reasons_table() -> Table:
    """The answers that differ, by what was counted, with who and where."""
    found: dict[str, dict] = {}
    for row in catalog.table("peers.csv"):
        if row["said"] != "figure" or not row["slips"]:
            continue
        key = row["slips"] if row["unit"] == "B/token" else f"{row['slips']} {row['unit']}"
        entry = found.setdefault(key, {"why": _why(row["slips"], row["unit"]), "who": [], "on": [], "they": [], "vllm": []})
        for name, value in (("who", f"{row['tool']} {row['version']}"), ("on", SHORT.get(row["model"], row["model"]))):
            if value not in entry[name]:
                entry[name].append(value)
        they = _figure(row["their_figure"]) if row["their_figure"] else f"{row['times_vllm']}x"
        if not entry["they"]:
            entry["they"], entry["vllm"] = they, f"{_figure(row['vllm_figure'])} {row['unit'].replace('B/token', 'B a token')}"
    rows = [
        {**entry, "who": ", ".join(entry["who"]), "on": ", ".join(entry["on"])}
        for entry in sorted(found.values(), key=lambda entry: -len(entry["who"]))
    ]
    return table(
        rows,
        [
            Col("why", "what was counted", "text"),
            Col("who", "by", "text"),
            Col("on", "seen on", "text"),
            Col("they", "says (first model)", "text"),
            Col("vllm", "vLLM keeps", "text"),
        ],
    )


def _figure(text: str) -> str:
    return f"{int(text):,}" if text.isdigit() else text


_OTHER = {
    "first_token": "a field for a request of one token, read as the cost of a token",
    "half": "one byte a number where two were meant",
    "mxfp4_width": "the width of the MXFP4 weights",
    "tp": "all GPUs' pool over one GPU's token",
    "no_padding": "states and tokens, without padding, second state and whole blocks",
    "conv_rows": "one more row of convolution than is kept",
}


def _why(slips: str, unit: str) -> str:
    if slips == "half" and unit == "B":
        return "an FP8 cache that narrows the convolution states too"
    return " and ".join(WORDS.get(word) or _OTHER[word] for word in slips.split())


PROBES = ("Qwen3-30B-A3B", "gpt-oss-120b", "DeepSeek-V3", "Qwen3.5-27B")


def minute_table() -> Table:
    """Four models to put to a tool: the right figure, and the figure of each slip that shows there."""
    rows = []
    for name in PROBES:
        right = ours(name)
        row = {"model": name, "right": f"{right.per_token:,}"}
        for key in NAMES:
            each = counted(name, () if key == "ours" else (key,)).per_token
            row[key] = Html("same" if each == right.per_token else f"{each:,}")
        rows.append(row)
    return aligned(
        table(
            rows,
            [Col("model", fmt="text"), Col("right", "right"), *(Col(key, NAMES[key]) for key in NAMES if key != "ours")],
            caption="Bytes of one more token, 16-bit cache, whole model",
        )
    )


def verdicts(answers: Mapping[str, object], tokens: int | None = None, kv_cache_dtype: str = "auto") -> Table:
    """A tool's figures by model, each with the slip that explains it."""
    rows = []
    for model, figure in answers.items():
        found = diagnose(model, figure, tokens=tokens, kv_cache_dtype=kv_cache_dtype)
        rows.append(
            {
                "model": found.model,
                "said": f"{found.figure:,.0f}",
                "right": f"{found.right:,}",
                "times": f"{found.ratio:.2f}",
                "why": found.sentence,
            }
        )
    what = f"a request of {tokens:,} tokens" if tokens else "one more token"
    return table(
        rows,
        [
            Col("model", fmt="text"),
            Col("said", "the tool", unit="B"),
            Col("right", "what is kept", unit="B"),
            Col("times", "ratio"),
            Col("why", "diagnosis", "text"),
        ],
        caption=f"Bytes of {what}",
    )


# The hybrid gap

GAP = "Qwen3.8-27B"
LENGTHS = (8_192, 32_768, 132_096, 262_144)


def gap_rows() -> list[dict]:
    """What a request of Qwen3.8-27B (two A100, FP8 cache) keeps and what vLLM sets aside for it, on each GPU, by length."""
    rows, right = [], ours(GAP, "fp8")
    for length in LENGTHS:
        sizing = size(
            load_model(GAP),
            Engine(gpu="A100 80GB SXM", tensor_parallel_size=2, kv_cache_dtype="fp8", max_model_len=length),
            available_bytes=round(52.89 * GiB),
        )
        tokens, states = length * right.per_token // 2, right.fixed // 2
        rows.append(
            {
                "length": length,
                "tokens": tokens,
                "states": states,
                "second": states,
                "rest": sizing.needed_bytes - tokens - 2 * states,
                "reserved": sizing.needed_bytes,
                "arithmetic": 52.89 * GiB / (tokens + states),
                "vllm": sizing.max_concurrency,
            }
        )
    return rows


def gap_table() -> Table:
    """Requests at once by arithmetic, by kvfit, and by vLLM's rules."""
    theirs = {
        row["setting"].split(", ")[-1].split()[0]: row["their_figure"]
        for row in catalog.table("peers.csv")
        if row["slips"] == "no_padding"
    }
    rows = [
        row | {"kvfit": theirs[f"{row['length']:,}"], "over": f"+{100 * (row['arithmetic'] / row['vllm'] - 1):.1f} %"}
        for row in gap_rows()
    ]
    return table(
        rows,
        [
            Col("length", "request", unit="tokens"),
            Col("arithmetic", "52.89 GiB ÷ (tokens + states)", ".2f"),
            Col("kvfit", "kvfit 0.3.0"),
            Col("vllm", "vLLM", ".2f"),
            Col("over", "arithmetic over vLLM"),
        ],
        caption=f"Requests at once, {GAP}, two A100, FP8 cache",
    )


def gap_picture() -> charts.Static:
    """What vLLM sets aside for one request, split into what is kept and what comes on top."""
    parts = (
        ("tokens", "its tokens", "kv"),
        ("states", "its states", "state"),
        ("second", "a second state", "window"),
        ("rest", "padding, whole blocks", "padding"),
    )
    rows = gap_rows()
    drawn = []
    for row in rows:
        start = 0.0
        for key, name, meaning in parts:
            share = 100 * row[key] / row["reserved"]
            drawn.append(
                {
                    "length": f"{row['length']:,} tokens",
                    "start": start,
                    "end": start + share,
                    "middle": start + share / 2,
                    "part": name,
                    "colour": charts.COLOURS[meaning],
                    "ink": charts.ink_on(charts.COLOURS[meaning]),
                    "label": f"{name} {share:.0f} %" if share > 17 else f"{share:.0f} %" if share > 4 else "",
                }
            )
            start += share
    base = alt.Chart(alt.Data(values=drawn)).encode(y=alt.Y("length:N", sort=None, title=None, axis=alt.Axis(minExtent=100)))
    x = charts.axis_x("start", "share of what vLLM sets aside for it (%)", (0, 100))
    bars = base.mark_bar(stroke="currentColor", strokeWidth=0.5, strokeOpacity=0.5).encode(
        x=x,
        x2="end:Q",
        color=alt.Color("part:N", scale=alt.Scale(domain=[p[1] for p in parts], range=[charts.COLOURS[p[2]] for p in parts])),
    )
    words = base.mark_text(fontSize=11).encode(
        x=alt.X("middle:Q"), text="label:N", color=alt.Color("ink:N", scale=None, legend=None)
    )
    picture = alt.layer(bars, words).resolve_scale(color="independent").properties(width=600, height=210)
    said = "; ".join(
        f"{row['length']:,} tokens: {100 * row['tokens'] / row['reserved']:.0f} % tokens, "
        f"{100 * row['states'] / row['reserved']:.0f} % states, as much again for the second state, "
        f"{100 * row['rest'] / row['reserved']:.0f} % padding and whole blocks"
        for row in rows
    )
    return charts.static(picture, alt=f"What vLLM sets aside for one request of {GAP}: {said}.")
