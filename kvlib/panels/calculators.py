"""Notebook 10: the five formulas beside what vLLM sets aside, what named tools answered, and your own tool."""

from __future__ import annotations

from kvlib import charts
from kvlib.capacity import size
from kvlib.config import load_model
from kvlib.controls import Choice, Col, Panel, PowerOfTwo, Predict, View, html, strong, table
from kvlib.engine import Engine
from kvlib.exercise import Exercise
from kvlib.formulas import FORMULAS, ours
from kvlib.panels.budget_pictures import tier
from kvlib.panels.calculator_tables import MODELS, NAMES, times
from kvlib.tables import gib
from kvlib.units import GiB

RESERVED = "what vLLM sets aside"
TIERS = tuple(step * 2.0**power for power in range(-5, 13) for step in (1, 1.5))  # GiB


class FiveFormulas(Panel):
    """One request, counted five ways, beside what vLLM sets aside for it."""

    name = "10-five-formulas"
    title = "One request, counted five ways"
    inputs = [
        Choice(
            "model", list(MODELS), "gpt-oss-120b", label="Model", flag="config.json", help="Models built in seven different ways."
        ),
        PowerOfTwo(
            "tokens",
            131_072,
            min=512,
            max=131_072,
            at_most=2**20,
            label="Request",
            unit="tokens",
            flag="--max-model-len",
            help="Prompt and answer; vLLM sets aside for the longest request.",
        ),
        Choice(
            "kv_cache_dtype",
            {"16 bits": "auto", "FP8": "fp8"},
            style="buttons",
            label="KV cache dtype",
            flag="--kv-cache-dtype",
            help="Width of each stored number; states keep theirs.",
        ),
    ]
    predict = Predict(
        "gpt-oss-120b: half of its layers look back 128 tokens only. Which count comes nearest to what vLLM sets aside for "
        "one request of 8,192 tokens?",
        options=list(NAMES.values()),
        answer=NAMES["every_layer"],
        because="vLLM also charges the window layers for the tokens of two steps in flight, 2 × 8,192. At this length their "
        "window saves nothing: 513 blocks, beside 512 for a full layer.",
    )

    def chart(self):
        return _bars(TIERS[-1])

    def compute(self, s):
        sizing = size(load_model(s.model), Engine(max_model_len=s.tokens, kv_cache_dtype=s.kv_cache_dtype), available_bytes=GiB)
        right = ours(s.model, s.kv_cache_dtype)
        kept, reserved = right.bytes(s.tokens), sizing.needed_bytes
        asked = s.model == "gpt-oss-120b" and s.tokens == 8_192
        items, rows = [], []
        for key, formula in FORMULAS.items():
            count = formula(s.model, s.kv_cache_dtype)
            each, mine = count.bytes(s.tokens), asked and self.guess == NAMES[key]
            more = "" if each == kept else f" · {times(each, kept)}"
            items.append((NAMES[key], each, gib(each) + more + " · your guess" * mine, "kv" if each == kept else "refused"))
            rows.append(
                {
                    "formula": NAMES[key],
                    "token": count.per_token,
                    "request": each,
                    "times": times(each, kept),
                    "working": count.working,
                }
            )
        items.append((RESERVED, reserved, f"{gib(reserved)} · {times(reserved, kept)}", "weights"))
        rows.append(
            {
                "formula": RESERVED,
                "token": None,
                "request": reserved,
                "times": times(reserved, kept),
                "working": f"{sizing.blocks_per_request:,} blocks × {sizing.bytes_per_block:,} B",
            }
        )
        top = tier(1.75 * max(value for _, value, _, _ in items) / GiB, TIERS)
        off = [f"{name} {times(value, kept)}" for name, value, _, colour in items if colour == "refused"]
        return View(
            answer=html(
                "{} tokens of {} keep {}; vLLM sets aside {}. {}",
                f"{s.tokens:,}",
                s.model,
                strong(gib(kept)),
                strong(gib(reserved)),
                f"Off: {', '.join(off)}." if off else "No slip shows on this model.",
            ),
            rows={
                "ranks": [
                    {"slot": i, "name": name, "value": value / GiB, "figure": figure, "colour": charts.COLOURS[colour]}
                    for i, (name, value, figure, colour) in enumerate(items)
                ]
            },
            chart=_bars(top),
            table=table(
                rows,
                [
                    Col("formula", fmt="text"),
                    Col("token", "one more token", "int", "B"),
                    Col("request", fmt="bytes"),
                    Col("times", "of ours", "text"),
                    Col("working", "worked out as", "text"),
                ],
            ),
            note="Whole model on one GPU, vLLM 0.33 with the defaults of an 80 GiB card: 8,192 tokens a step, prefix caching on."
            + _too_long(s),
            description="; ".join(f"{name}: {figure}" for name, _, figure, _ in items) + ".",
        )


def _too_long(s) -> str:
    longest = load_model(s.model).max_position_embeddings
    return f" Longer than {s.model}'s own maximum, {longest:,} tokens." if longest and s.tokens > longest else ""


@charts.made_once("top")
def _bars(top: float) -> dict:
    return charts.themed(charts.ranks(count=len(NAMES) + 1, domain=(0, top), label_width=190, title="GiB for one request"))


# Exercises

_ANSWERS = {
    "the slip": Exercise(
        "hidden",
        because="2 × 40 layers × 8 heads × 160 × 2 B, and its config says head_dim 128.",
        slips={
            "heads": "that would give four times as much, not a quarter more",
            "layers": "all its layers are full attention, so this slip cannot show",
            "mla": "it keeps keys and values head by head, so this slip cannot show",
        },
    ),
    "requests": Exercise(
        2,
        unit="requests",
        because="8,192 × 262,144 B are 2 GiB each. In truth a request keeps 659 MiB, and six fit.",
        slips={8: "that leaves the states out: 147 MiB a request", 6: "that is what fits in truth; the tool counts 64 layers"},
    ),
}


def check(exercise: str, answer):
    """Judge the answer to one of the notebook's exercises."""
    return _ANSWERS[exercise].check(answer)
