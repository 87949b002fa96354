"""Notebook 02: the calculator. Where one GPU's memory goes, and how many requests fit into the rest."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import kvlib
from kvlib import Band, Engine, MemoryBudget, SizingError, catalog
from kvlib.controls import (
    Choice, Col, Fraction, Number, Panel, PowerOfTwo, Predict, View, html, mark, strong, table,
)
from kvlib.errors import ConfigError
from kvlib.memory import TERMS, at, requested_bytes
from kvlib.panels.budget_facts import (
    CONTEXT, GB10, NOT_CHECKED, TOTAL, VERSION, WIDTHS, about, another_card, card, cards, interval, judge, model,
    reserve_of, taken, weights_of,
)
from kvlib.panels.budget_pictures import COUNT_TIERS, MEMORY_TIERS, bar_rows, bar_spec, budget_parts, span_rows, span_spec, tier
from kvlib.tables import Html
from kvlib.units import GiB, gib, human

TYPED, ASSUMED, OWN = "typed figure", "assumed band", "my own"
OPENS = {"model": "Qwen3-8B", "tensor_parallel_size": 1, "max_model_len": CONTEXT, "kv_cache_dtype": "auto",
         "weights": "as published", "gpu": GB10, "total_gib": TOTAL, "gpu_memory_utilization": 0.92,
         "reserve_from": TYPED, "reserve_gib": 3.0}
STARTS = {
    "the GB10 run": {},
    "1 · 8,192 tokens": {"max_model_len": 8_192},
    "2 · FP8 cache": {"kv_cache_dtype": "fp8"},
    "3 · gpt-oss-120b": {"model": "gpt-oss-120b", "weights": "4-bit"},
}
NAMES = {"weights_bytes": "weights", "peak_activation_bytes": "activation peak", "non_torch_bytes": "non-torch memory",
         "cuda_graph_bytes": "CUDA graphs"}
SETTLES = {**NAMES, "weights_bytes": "the weights once loaded", "peak_activation_bytes": "the activation peak",
           "cuda_graph_bytes": "the CUDA graphs"}


class Calculator(Panel):
    """Seven choices of the reader, the memory bar, and an exact answer or an honest range."""

    name = "02-calculator"
    title = f"What is left for the cache, by the rules of vLLM {VERSION}"
    inputs = (
        Choice("start", [*STARTS, OWN], style="buttons", label="Start from",
               help="The launch above, or one of three things to try; the other controls follow."),
        Choice("model", catalog.models(), OPENS["model"], label="Model", help="A file in data/models."),
        Choice("gpu", {f"{each.name} · {each.reported_gib:g} GiB": each.name for each in cards().values()}, GB10,
               label="GPU", help="Its name, and the memory its driver reports."),
        PowerOfTwo("max_model_len", CONTEXT, min=1024, max=131_072, label="Longest request", unit="tokens",
                   flag="--max-model-len", help="Prompt and answer together."),
        Choice("kv_cache_dtype", {"auto": "auto", "FP8": "fp8"}, style="buttons", label="KV cache dtype",
               flag="--kv-cache-dtype", help="auto: the model's own, 16 bits as a rule."),
        Fraction("gpu_memory_utilization", 0.92, min=0.3, max=0.98, label="Share requested",
                 flag="--gpu-memory-utilization", help="Weights, working memory and cache together."),
        Choice("reserve_from", [TYPED, ASSUMED], style="buttons", label="Runtime reserve is a",
               help="A figure that you measured, or what other launches of this kind took."),
        Number("reserve_gib", 3.0, min=0, max=12, step=0.05, at_least=-5, at_most=100, label="Runtime reserve",
               unit="GiB", help="Activation peak, non-torch memory, CUDA graphs. To move it is to type it."),
        Number("total_gib", TOTAL, min=8, max=300, step=0.5, at_least=4, at_most=320, integer=False,
               label="GPU memory", unit="GiB", help="Follows the GPU; type what your own driver says."),
        Choice("weights", [*WIDTHS], label="Weights dtype",
               help="Measured where a launch of that width is on file; else parameters times width, as a range."),
        Choice("tensor_parallel_size", [1, 2, 4, 8], 1, style="buttons", label="GPUs that share the model",
               flag="--tensor-parallel-size", help="All figures here are for one of them."),
    )
    predict = Predict(
        f"Qwen3-8B takes 15 GiB and leaves room for 16.6 requests of {CONTEXT:,} tokens. Put gpt-oss-120b in its "
        "place, with 64 GiB of 4-bit weights. How many requests of that length fit now?",
        answer=lambda: asked_for_gpt_oss()[1].max_concurrency, unit="requests", within=20,
        shown=lambda value: f"about {value:.0f} requests",
        because=lambda: html("More, out of half the memory: so much less does a token of gpt-oss-120b take. Its "
                             "reserve is assumed, so take it as {}.", interval(
                                 *(asked_for_gpt_oss()[end].max_concurrency for end in (0, 2)), 0)))

    def follow(self, name, s):
        if name == "start":
            return self._from_start(s.start)
        moved = {"start": OWN}
        if name == "gpu":
            s.total_gib = moved["total_gib"] = cards()[s.gpu].reported_gib
        if name == "reserve_gib":
            moved["reserve_from"] = TYPED
        elsewhere = name == "total_gib" and another_card(s.gpu, s.total_gib)
        asked = name == "reserve_from" and s.reserve_from == ASSUMED
        if name in ("model", "tensor_parallel_size", "gpu") or elsewhere or asked:
            moved |= _to_band(s)
        return moved

    def _from_start(self, start):
        if start == OWN:
            return {}
        values = {**OPENS, **STARTS[start]}
        if values["model"] != OPENS["model"]:
            values |= _to_band(SimpleNamespace(**values))
        return {name: self._inputs[name].text(value) for name, value in values.items()}

    def compute(self, s):
        memory, known = _budget(s)
        sizes = kvlib.size_range(model(s.model), _engine(s, gpu_memory_utilization=s.gpu_memory_utilization),
                                 memory=memory)
        verdict, length = judge(*sizes), sizes[0].max_model_len
        share = sizes[0].plan.setup.gpu_memory_utilization
        parts = budget_parts(memory, share, {"weights": "measured", "reserve": "typed"}, refused=verdict.word == "refused")
        limit = tier(max(s.total_gib, taken(sizes[0]) / GiB), MEMORY_TIERS)
        least, most = sizes[0].max_concurrency, sizes[2].max_concurrency
        top = tier(1.1 * max(most, self.guess or 0, 0.5), COUNT_TIERS)
        meaning = "refused" if verdict.word == "refused" else "kv"
        return View(
            answer=html("{} {} {}", _figures(sizes), verdict.sentence, _settles(sizes, memory)),
            rows={"bar": bar_rows(parts, limit)}
            | span_rows(least, most, _requests(sizes), self.guess, top, "your guess for gpt-oss-120b"),
            chart=[bar_spec(limit), span_spec(top, f"requests of {length:,} tokens at once", meaning)],
            table=_table(s, sizes, memory, known), note=" ".join([*_cautions(sizes[0]), NOT_CHECKED]),
            description=["Memory of one GPU: " + ", ".join(f"{part[0]} {part[3]}" for part in parts if part[0]) + ".",
                         f"{_requests(sizes)} of {length:,} tokens at once."])


def _engine(s, **flags) -> Engine:
    return Engine(vllm_version=VERSION, gpu=card(s.gpu, s.total_gib), tensor_parallel_size=s.tensor_parallel_size,
                  kv_cache_dtype=s.kv_cache_dtype, max_model_len=s.max_model_len, **flags)


def _to_band(s) -> dict:
    """A reserve measured for one model on one card stands for no other: back to what is known of this one."""
    moved = {"reserve_from": ASSUMED}
    try:
        bands = reserve_of(s.model, _engine(s)).values()
    except SizingError:
        return moved
    return moved | {"reserve_gib": round(sum(band.typical for band in bands) / GiB, 2)}


def _budget(s) -> tuple[MemoryBudget, str]:
    """The budget of one GPU, and where its weights are known from."""
    try:
        weights, known = weights_of(s.model, s.weights, s.tensor_parallel_size)
    except ConfigError:
        kvlib.bytes_per_token(model(s.model), _engine(s))   # where the cache is not known, say that first
        raise
    terms = reserve_of(s.model, _engine(s)) if s.reserve_from == ASSUMED else {"non_torch_bytes": gib(s.reserve_gib)}
    return MemoryBudget(gib(s.total_gib), weights, **terms), known


@cache
def asked_for_gpt_oss():
    """The three sizings behind the question: the third suggestion on the GB10, its reserve assumed."""
    s = SimpleNamespace(**{**OPENS, **STARTS["3 · gpt-oss-120b"], "reserve_from": ASSUMED})
    engine = _engine(s, gpu_memory_utilization=s.gpu_memory_utilization)
    return kvlib.size_range(model(s.model), engine, memory=_budget(s)[0])


def _exact(sizes) -> bool:
    return sizes[0].available_bytes == sizes[2].available_bytes


def _requests(sizes) -> str:
    least, most = sizes[0].max_concurrency, sizes[2].max_concurrency
    if most == 0:
        return "no request"
    return f"{least:,.2f} requests" if _exact(sizes) else f"{about(least)} to {about(most)} requests"


def _figures(sizes) -> Html:
    """The figures in a sentence: exact where all is measured or typed, else a range."""
    low, _, high = sizes
    if high.available_bytes <= 0:
        return Html("")
    tokens = f"{low.kv_cache_tokens:,}" if _exact(sizes) else \
        f"About {about(low.kv_cache_tokens)} to {about(high.kv_cache_tokens)}"
    return html("{}, {} of {} at once.", strong(tokens + " tokens"), _requests(sizes), f"{low.max_model_len:,}")


def _settles(sizes, memory) -> Html:
    """The one input that would turn the range into a figure; nothing where there is no range."""
    if not memory.assumed or sizes[2].available_bytes <= 0:
        return Html("")
    widest = max(memory.assumed, key=lambda term: getattr(memory, term).high - getattr(memory, term).low)
    band = getattr(memory, widest)
    return html("Least certain: {}, {}; one launch tells.", SETTLES[widest],
                mark(interval(band.low / GiB, band.high / GiB, 1) + " GiB", "assumed"))


def _cautions(sizing) -> list[str]:
    return [note + "." for note in sizing.notes if "max_model_len" in note]


def _table(s, sizes, memory, known):
    low, typical, high = sizes
    share = low.plan.setup.gpu_memory_utilization
    asked = requested_bytes(at(memory.total_bytes, "typical"), share)
    left = low.available_bytes if _exact(sizes) else \
        Band(low.available_bytes, typical.available_bytes, high.available_bytes)

    def row(part, value, source, kind="computed"):
        figure = value if isinstance(value, str) else _gib(value)
        return {"part": part, "figure": mark(figure, "assumed" if isinstance(value, Band) else kind), "how": source}

    own = "typed" if another_card(s.gpu, s.total_gib) else f"as the driver of this card reports it: {s.gpu}"
    rows = [row("GPU memory", memory.total_bytes, own, "measured"),
            row("requested", asked, f"memory × {share:g}, rounded up"),
            row("− weights", memory.weights_bytes, known, "measured")]
    if s.reserve_from == TYPED:
        rows.append(row("− runtime reserve", gib(s.reserve_gib), "typed", "measured"))
    else:
        rows += [row(f"− {NAMES[term]}", getattr(memory, term), _short(getattr(memory, term).source))
                 for term in TERMS[1:]]
    grows = typical.plan.bytes_per_token
    rows += [row("= KV cache", left, "what is left"),
             row("one more token", human(grows) if grows else "nothing", "in the layers that grow, on one GPU"),
             row(f"a request of {low.max_model_len:,}", human(low.needed_bytes),
                 f"{low.blocks_per_request:,} blocks of {human(low.bytes_per_block)}")]
    return table(rows, [Col("part"), Col("figure"), Col("how", "where from")])


def _gib(value: int | Band) -> str:
    return interval(at(value, "low") / GiB, at(value, "high") / GiB, 2) + " GiB"


def _short(source: str) -> str:
    """The head of a band's account."""
    for stop in (": ", "; ", ", and "):
        source = source.partition(stop)[0]
    return source
