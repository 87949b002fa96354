"""Notebook 90: the notes' rows as tables, and the state blocks of a request by version."""

from __future__ import annotations

import altair as alt

from kvlib import catalog, charts, load_model, size
from kvlib.controls import Choice, Col, Number, Panel, Predict, View, html, strong, table
from kvlib.engine import Engine
from kvlib.scoreboard import HYBRID_POOL, Score, score
from kvlib.tables import Html, esc, number, reproduced

__all__ = ["StateBlocks", "scores", "table_of"]

HYBRID = load_model("Qwen3.8-27B")
VERSIONS = ["0.28", "0.30", "0.32", "0.33"]
CARDS = {"A100": "A100 80GB SXM", "H100": "H100 SXM", "B200": "B200"}
LENGTH = 32_768
MOST = 40


def scores(note: str) -> list[Score]:
    """Every row of a note, worked out."""
    return [score(row) for row in catalog.note_rows(note)]


def table_of(found: list[Score], name: str):
    """A note's rows: printed, ours and the difference, each with the lesson it lives in."""
    figures = [s for s in found if s.verdict != "shown"]
    rows = [{"id": s.row["id"], "what": s.row["what"] + (" (rebuilt)" if s.row["lost"] == "yes" else ""),
             "printed": _printed(s.row), "ours": _ours(s), "gap": _gap(s),
             "as_printed": s.against_print or "–", "where": _link(s.row)} for s in found]
    return table(rows, [Col("id", fmt="text"), Col("what", "what", "text"), Col("printed", "printed", "text"),
                        Col("ours", "ours", "text"), Col("gap", "difference", "text"),
                        Col("as_printed", "the print is", "text"), Col("where", "lesson")],
                 caption=f"All rows of the {name}",
                 footer=reproduced(sum(s.verdict == "equal" for s in figures), len(figures), "rows worked out"))


def _printed(row: dict) -> str:
    if not any(character.isdigit() for character in row["printed"]):
        return "–"
    return f"{row['printed']} {'' if '=' in row['printed'] else row['unit']}".strip()


def _ours(found: Score) -> str:
    if found.verdict == "shown":
        return "measured" if found.row["kind"] in ("measured", "log") else "–"
    return " / ".join(number(value) if isinstance(value, int) else f"{value:,.7g}" for value in found.ours)


def _gap(found: Score) -> str:
    if found.verdict == "shown":
        return "–"
    if found.verdict == "equal":
        return "0"
    return f"{found.difference:+,}" if found.difference is not None else "differs"


def _link(row: dict) -> Html:
    lesson = row["notebook"]
    return Html(f'<a href="{esc(lesson)}#{esc(row["cell"])}">{esc(lesson[:2])}</a>')


class StateBlocks(Panel):
    """Blocks of recurrent state a request of Qwen3.8-27B takes, release by release."""

    name = "90-state-blocks"
    title = "Blocks one request of Qwen3.8-27B takes, two GPUs, FP8 cache"
    inputs = [
        Choice("gpu", CARDS, "A100 80GB SXM", style="buttons", label="Card", flag="(hardware)",
               help="Decides which kernel fills the recurrent state."),
        Number("num_speculative_tokens", 0, min=0, max=5, label="Draft tokens", unit="tokens",
               flag="--speculative-config", help="Drafted by the model's own MTP layer; 0 is off."),
        Choice("enable_prefix_caching", {"on": True, "off": False}, True, style="buttons", label="Prefix caching",
               flag="--enable-prefix-caching", help="Keeps states at block boundaries for reuse."),
    ]
    predict = Predict(
        "On an A100 a request keeps 6 blocks of recurrent state, two in each of three groups. How many on an H100, "
        "served by vLLM 0.33?", answer=9, unit="blocks", within=1,
        because="FlashInfer's prefill keeps one more checkpoint in every group.")

    def chart(self):
        base = alt.Chart(alt.NamedData("blocks"))
        y = alt.Y("version:N", title="vLLM", sort=None, scale=alt.Scale(domain=VERSIONS))
        x = alt.X("start:Q", title="blocks of one request of 32,768 tokens",
                  scale=alt.Scale(domain=[0, MOST], nice=False, clamp=True))
        bars = base.mark_bar(height=26, stroke="white", strokeWidth=1).encode(
            x=x, x2="end:Q", y=y, color=alt.Color("colour:N", scale=None, legend=None))
        words = base.mark_text(align="left", dx=5, fontWeight="bold").encode(
            x=alt.X("start:Q"), y=y, text="label:N", color=alt.Color("ink:N", scale=None, legend=None))
        return (bars + words + charts.guess_rule()).properties(width=charts.WIDTH - 40, height=4 * 44)

    def compute(self, s):
        rows, bars = [], []
        for version in VERSIONS:
            drafts = dict(speculative_method="mtp", num_speculative_tokens=s.num_speculative_tokens) \
                if s.num_speculative_tokens else {}
            sizing = size(HYBRID, Engine(vllm_version=version, gpu=s.gpu, tensor_parallel_size=2, kv_cache_dtype="fp8",
                                         max_model_len=LENGTH, enable_prefix_caching=s.enable_prefix_caching,
                                         max_num_seqs=8, **drafts), available_bytes=HYBRID_POOL[1])
            states = [g.blocks_per_request for g in sizing.groups if not g.is_attention]
            attention = sizing.blocks_per_request - sum(states)
            rows.append({"version": version, "each": states[0], "states": sum(states), "attention": attention,
                         "block": sizing.block_size, "tokens": sizing.kv_cache_tokens})
            for start, end, label, meaning in ((0, sum(states), f"{sum(states)} state", "state"),
                                               (sum(states), sum(states) + attention, f"{attention} attention", "kv")):
                colour = charts.COLOURS[meaning]
                bars.append({"version": version, "start": start, "end": end, "label": label, "colour": colour,
                             "ink": charts.ink_on(colour)})
        first, last = rows[0], rows[-1]
        moved = "the same in every release shown" if len({row["states"] for row in rows}) == 1 else \
            f"{first['states']} up to 0.32, {last['states']} since 0.33"
        return View(
            answer=html("{} blocks of recurrent state a request in vLLM 0.33: {}.", strong(last["states"]), moved),
            rows={"blocks": bars, "guess": charts.guess_rows(self.guess)},
            table=table(rows, [Col("version", "vLLM", "text"), Col("each", "state blocks a group"),
                               Col("states", "in three groups"), Col("attention", "attention blocks"),
                               Col("block", "block", unit="tokens"), Col("tokens", "printed size", unit="tokens")]),
            description="Bars by release: " + "; ".join(
                f"{row['version']}: {row['states']} state and {row['attention']} attention blocks" for row in rows) + ".")
