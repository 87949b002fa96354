"""Notebook 04: one model over several GPUs, its KV heads dealt to them, and the sweep note's 70B on two and four."""

from __future__ import annotations

from functools import lru_cache

from kvlib import Engine, MemoryBudget, SizingError, bytes_per_token, catalog, charts
from kvlib.controls import Choice, Col, Number, Panel, PowerOfTwo, Predict, View, html, mark, strong, table
from kvlib.memory import TERMS, at, requested_bytes
from kvlib.panels.budget_facts import about, interval, judge, reserve_of, taken
from kvlib.panels.budget_pictures import COUNT_TIERS, MEMORY_TIERS, bar_rows, bar_spec, strips_spec, tier
from kvlib.panels.parallel_facts import CARD, SEVENTY, dealt, kv_heads, model_of, on_gpus, ranged
from kvlib.panels.parallel_knobs import Knobs, what_it_moves
from kvlib.panels.parallel_pictures import (
    heads_spec, heads_rows, kib_tier, price_rows, price_spec, spans_rows, spans_spec,
)
from kvlib.panels.program_rows import NOTE_VERSION, on_a_card
from kvlib.tables import gib as in_gib
from kvlib.units import GiB, gib

__all__ = ["DealtHeads", "Knobs", "SplitModel", "TwoOrFour", "dealt", "kv_heads", "on_gpus", "what_it_moves"]

SPLITS = (1, 2, 4, 8, 16)
TOKEN_TIERS = tuple(step * 10**power for power in range(4, 8) for step in (1, 2, 5))
NAMES = {"weights_bytes": "the weights once loaded", "peak_activation_bytes": "the activation peak",
         "non_torch_bytes": "non-torch memory", "cuda_graph_bytes": "the CUDA graphs"}
MODELS = (SEVENTY, "Llama-3.1-8B", "Llama-3.1-405B", "Qwen2.5-1.5B", "Qwen2.5-72B", "Qwen3-8B", "Qwen3-32B",
          "Qwen3-30B-A3B", "Qwen3-235B-A22B", "Mistral-Small-24B-2501", "Gemma-3-27b", "gpt-oss-120b", "Qwen3-Next-80B-A3B",
          "DeepSeek-V2-Lite", "DeepSeek-V3", "Kimi-K2")
DTYPES = {"auto": "auto", "FP8": "fp8"}


class SplitModel(Panel):
    """One model over 1 to 16 GPUs: the memory of one of them, and the requests that all of them hold."""

    name = "04-split"
    title = "One model over several GPUs"
    inputs = [
        Choice("model", list(MODELS), SEVENTY, label="Model", help="A file in data/models, its weights on file."),
        Choice("gpu", {f"{each.name} · {each.reported_gib:g} GiB": each.name for each in catalog.gpus().values()},
               CARD, label="Each GPU", help="Its name, and the memory its driver reports."),
        Choice("tensor_parallel_size", list(SPLITS), 4, style="buttons", label="GPUs (TP)",
               flag="--tensor-parallel-size", help="GPUs that share every layer."),
        PowerOfTwo("max_model_len", 131072, min=1024, max=131072, at_most=1 << 20, label="Longest request",
                   unit="tokens", flag="--max-model-len", help="Prompt and answer together."),
        Choice("kv_cache_dtype", DTYPES, style="buttons", label="KV cache dtype", flag="--kv-cache-dtype",
               help="auto: the model's own, 16 bits as a rule."),
    ]
    predict = Predict(
        "Llama-3.3-70B on two H100s: 0.2 of a request of 131,072 tokens. On four: 3.6 requests. On eight?",
        answer=lambda: round(on_gpus(SEVENTY, 8, 131072)[1].max_concurrency, 1), unit="requests", within=12,
        because="Nearly three times as many, out of twice the GPUs: each has more room, and each token takes half as "
                "much of it.")

    def chart(self):
        return [bar_spec(128), spans_spec(tuple(map(_gpus, SPLITS)), COUNT_TIERS[0], "requests at once")]

    def compute(self, s):
        so_far = [tp for tp in SPLITS if tp <= s.tensor_parallel_size]
        found = {tp: self._sizes(s, tp) for tp in so_far[:-1]}
        sizes = found[s.tensor_parallel_size] = on_gpus(s.model, s.tensor_parallel_size, s.max_model_len,
                                                        s.kv_cache_dtype, s.gpu)
        verdict, memory = judge(*sizes), sizes[1].memory
        top = tier(1.15 * max(self.guess or 0, 1, sizes[2].max_concurrency), COUNT_TIERS)
        parts = _parts(sizes, verdict)
        limit = tier(max(at(memory.total_bytes, "typical"), taken(sizes[0])) / GiB, MEMORY_TIERS)
        rows = []
        for tp, each in found.items():
            if each is None:
                rows.append((_gpus(tp), 0, 0, "vLLM refuses this split", "refused", 1.0))
                continue
            low, _, high = each
            meaning = "kv" if high.fits else "refused"
            rows.append((_gpus(tp), low.max_concurrency, high.max_concurrency, _requests(each), meaning,
                         1.0 if tp == s.tensor_parallel_size else 0.55))
        names = tuple(_gpus(tp) for tp in SPLITS)
        least, most = sizes[0], sizes[2]
        figures = "" if most.available_bytes <= 0 else html(
            "{} tokens in all, {} of {} at once.", strong(_span(least.kv_cache_tokens, most.kv_cache_tokens)),
            _requests(sizes), f"{least.max_model_len:,}")
        return View(
            answer=html("{} {} {}", figures, verdict.sentence, _settles(sizes)),
            rows={"bar": bar_rows(parts, limit)} | spans_rows(rows, top, self.guess, (1,)),
            chart=[bar_spec(limit), spans_spec(names, top, f"requests of {least.max_model_len:,} tokens at once, all GPUs together")],
            table=table([self._cells(tp, each) for tp, each in found.items()], [
                Col("gpus", "GPUs", "text"), Col("weights", "weights on each"), Col("reserve", "reserve on each"),
                Col("left", "for the cache on each"), Col("token", "a token on each"), Col("tokens", "tokens, all together"),
                Col("requests", "requests"), Col("check", "memory checks", "text")], highlight=len(found) - 1),
            note=" ".join([*(note + "." for note in least.notes if "max_model_len" in note),
                           "The line stands at one request: left of it vLLM refuses. Pale: may or may not be there. "
                           "A larger split joins the picture once you choose it. Not checked: links between GPUs, "
                           "kernels, what other processes hold."]),
            description=["One GPU: " + ", ".join(f"{p[0]} {p[3]}" for p in parts if p[0]) + ".",
                         "; ".join(f"{row[0]}: {row[3]}" for row in rows) + "."])

    @staticmethod
    def _sizes(s, tp):
        try:
            return on_gpus(s.model, tp, s.max_model_len, s.kv_cache_dtype, s.gpu)
        except SizingError:
            return None

    @staticmethod
    def _cells(tp, sizes):
        if sizes is None:
            return {"gpus": str(tp), "check": "vLLM refuses this split"}
        low, typical, high = sizes
        weights, reserve = _weights_and_reserve(low, high)
        word = {"passes": "passes", "close": "too close to call", "refused": "refused"}[judge(*sizes).word]
        cells = {"gpus": str(tp), "weights": f"{interval(*weights, 1)} GiB",
                 "reserve": mark(f"{interval(*reserve, 1)} GiB", "assumed"), "check": word,
                 "left": mark(f"{interval(max(0, low.available_bytes) / GiB, max(0, high.available_bytes) / GiB, 1)} GiB", "assumed"),
                 "token": html("{}", in_gib(typical.plan.bytes_per_token)), "tokens": None, "requests": None}
        if high.available_bytes > 0:
            cells |= {"tokens": mark(_span(low.kv_cache_tokens, high.kv_cache_tokens), "assumed"),
                      "requests": mark(_span(low.max_concurrency, high.max_concurrency), "assumed")}
        return cells


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"


def _span(low: float, high: float) -> str:
    low, high = about(max(0, low)), about(max(0, high))
    return low if low == high else f"{low} to {high}"


def _requests(sizes) -> str:
    low, _, high = sizes
    if high.outcome == "weights_do_not_fit":
        return "the weights do not fit"
    if high.available_bytes <= 0:
        return "no room for a cache"
    return _span(low.max_concurrency, high.max_concurrency) + " requests"


def _settles(sizes) -> str:
    """The one input that would narrow the range most; nothing where there is none or nothing is left."""
    least, _, most = sizes
    if most.available_bytes <= 0 or least.available_bytes == most.available_bytes:
        return ""
    widths = {term: (at(getattr(least.memory, term), "typical"), at(getattr(most.memory, term), "typical"))
              for term in TERMS}
    widest = max(widths, key=lambda term: widths[term][0] - widths[term][1])
    high, low = widths[widest]
    return html("Least certain: {}, {}; one launch tells.", NAMES[widest],
                mark(f"{interval(low / GiB, high / GiB, 1)} GiB a GPU", "assumed"))


def _parts(sizes, verdict) -> list[tuple]:
    """The memory of one GPU: weights, the reserve at least and what may come on top, the cache at least, the rest."""
    low, _, high = sizes
    total = at(low.memory.total_bytes, "typical") / GiB
    asked = requested_bytes(at(low.memory.total_bytes, "typical"), low.plan.setup.gpu_memory_utilization) / GiB
    (lightest, weights), (least, most) = _weights_and_reserve(low, high)
    if lightest + least > asked:
        room = max(0.0, min(lightest, asked))
        return [("weights", room, "weights", f"{lightest:.1f} GiB"), ("too much", lightest + least - room, "refused",
                f"{lightest + least - asked:.1f} GiB more than is asked for")]
    weights_drawn = min(weights, asked)
    sure = min(least, asked - weights_drawn)
    pale = min(most, asked - weights_drawn) - sure
    left = max(0.0, asked - weights - most)
    return [("weights", weights_drawn, "weights", f"{interval(lightest, weights, 1)} GiB"),
            ("reserve", sure, "reserve", f"{interval(least, most, 1)} GiB assumed"), ("", pale, "reserve", "", "pale"),
            ("KV cache", left, "refused" if verdict.word == "refused" else "kv", f"from {left:.1f} GiB"),
            ("not requested", total - asked, "unused", f"{total - asked:.1f} GiB")]


def _weights_and_reserve(low, high) -> tuple[list[float], list[float]]:
    """GiB of the weights and of all the rest, each from the least to the most; the least memory is left at the most."""
    weights = [at(each.memory.weights_bytes, "typical") / GiB for each in (high, low)]
    return weights, [taken(each) / GiB - weight for each, weight in zip((high, low), weights)]


class DealtHeads(Panel):
    """Which KV heads stand on which GPU, and what a token then costs there."""

    name = "04-heads"
    title = "KV heads dealt to GPUs"
    inputs = [
        Choice("model", {"Llama-3.3-70B · 8 KV heads": SEVENTY, "Qwen3-30B-A3B · 4 KV heads": "Qwen3-30B-A3B",
                         "Qwen2.5-1.5B · 2 KV heads": "Qwen2.5-1.5B", "Llama-2-7b · 32 KV heads": "Llama-2-7b",
                         "DeepSeek-V3 · one latent row": "DeepSeek-V3"}, SEVENTY, label="Model",
               help="DeepSeek-V3 keeps one row for all heads together (latent attention, MLA)."),
        Choice("tensor_parallel_size", [1, 2, 3, 4, 8, 16], 2, style="buttons", label="GPUs (TP)",
               flag="--tensor-parallel-size", help="Must divide the attention heads."),
    ]
    predict = Predict(
        "A token of Qwen2.5-1.5B costs 28 KiB on one GPU. The model has 2 KV heads. Over 4 GPUs, how many KiB does "
        "each keep of it?", answer=14, unit="KiB", within=4,
        because="28 ÷ 4 would be half a head. A GPU keeps at least one whole head, so each head stands on two GPUs.")

    def chart(self):
        return [heads_spec(), price_spec(512)]

    def compute(self, s):
        tp, model = s.tensor_parallel_size, model_of(s.model)
        one, each = bytes_per_token(model), bytes_per_token(model, Engine(tensor_parallel_size=tp))
        heads, latent = kv_heads(s.model), kv_heads(s.model) is None
        hands = dealt(heads, tp)
        copies = each * tp / one
        where = "on one GPU" if tp == 1 else f"on each of {tp} GPUs"
        how = ("every GPU keeps the whole latent row" if latent and tp > 1 else
               "the whole token" if tp == 1 else
               f"{len(hands[0])} of {heads} KV heads" if copies == 1 else
               f"one KV head, and each head stands on {copies:.0f} GPUs")
        return View(
            answer=html("{} a token {}: {}.", strong(in_gib(each)), where, how),
            rows=heads_rows(hands, latent) | price_rows(one / tp, each, self.guess),
            chart=[heads_spec(), price_spec(kib_tier(one))],
            table=table([{"gpus": tp, "attention": model.num_attention_heads, "kv": heads, "kept": len(hands[0]) if not latent else None,
                          "divided": one // tp, "each": each, "all": each * tp, "more": f"{copies:.0f} ×"}],
                        [Col("gpus", "GPUs"), Col("attention", "attention heads"), Col("kv", "KV heads"),
                         Col("kept", "on each GPU"), Col("divided", "value ÷ N", unit="B"),
                         Col("each", "vLLM keeps", unit="B"), Col("all", "all GPUs together", unit="B"),
                         Col("more", "each byte is kept")]),
            note="Solid tiles hold something new; pale ones hold what another GPU has already.",
            description=[f"{tp} boxes, one a GPU; {how}.",
                         f"Two bars: value ÷ N {in_gib(one // tp)}, vLLM keeps {in_gib(each)}."])


TYPED, ASSUMED = "typed figure", "assumed band"


class TwoOrFour(Panel):
    """The sweep note's calculator: the 70B on two cards and on four, with a typed rest or an assumed one."""

    name = "04-two-or-four"
    title = "Llama-3.3-70B on two cards and on four"
    counts = (2, 4)
    inputs = [
        Choice("other_from", [TYPED, ASSUMED], style="buttons", label="All but weights and cache is a",
               help="The note types 0.8 GiB. The band is what other launches over NVLink took."),
        Number("other_gib", 0.8, min=0, max=12, step=0.1, at_most=100, label="… typed, on each GPU", unit="GiB",
               help="Activation peak, non-torch memory, CUDA graphs. To move it is to type it."),
        Number("gpu_gib", 80.0, min=48, max=192, step=1, at_least=8, at_most=400, integer=False, label="One GPU",
               unit="GiB", help="The note's round figure; an H100's driver reports 79.19."),
        Number("weights_gib", 131.5, min=32, max=160, step=0.5, at_least=1, at_most=1000, label="Weights, all GPUs",
               unit="GiB", help="131.5 in 16 bits; about half of it in 8 bits."),
        PowerOfTwo("max_model_len", 131072, min=1024, max=131072, at_most=131072, label="Longest request",
                   unit="tokens", flag="--max-model-len", help="Prompt and answer together."),
    ]
    predict = Predict(
        "Two cards hold 46,192 tokens if all but weights and cache takes 0.8 GiB. Nine launches on two GPUs printed "
        "2.1 GiB for a single part of it. Put 3 GiB in place of 0.8: how many tokens are left?",
        answer=lambda: on_a_card(SEVENTY, 80.0, 2, 0.92, "auto", 131.5, 3.0).kv_cache_tokens, unit="tokens", within=12,
        because="2.2 GiB are gone from 7.05: almost a third of the cache. On four cards the same loss is 5 %.")

    def follow(self, name, s):
        return {"other_from": TYPED} if name == "other_gib" else None

    def chart(self):
        return [strips_spec(2, 128, "GiB of one GPU", "no guess"),
                spans_spec(tuple(map(_gpus, self.counts)), TOKEN_TIERS[0], "tokens in the cache")]

    def compute(self, s):
        found = {count: self._sizes(s, count) for count in self.counts}
        limit = tier(s.gpu_gib, MEMORY_TIERS)
        most = max(each[2].kv_cache_tokens for each in found.values())
        top = tier(1.1 * max(most, self.guess or 0, s.max_model_len), TOKEN_TIERS)
        strips, rows = [], []
        for count, each in found.items():
            low, high = each[0], each[2]
            weights = at(low.memory.weights_bytes, "typical") / GiB
            rest = (taken(low) - at(low.memory.weights_bytes, "typical")) / GiB
            left = max(0.0, low.available_bytes / GiB)
            asked = requested_bytes(at(low.memory.total_bytes, "typical"), 0.92) / GiB
            meaning = "kv" if high.fits else "refused"
            short = min(weights, asked)
            strips.append((f"one of {count} GPUs: {_gib(low, high)} for the cache", 0,
                           [("weights", short, "weights"), ("rest", min(rest, asked - short), "reserve"),
                            ("KV cache", left, meaning), ("not requested", s.gpu_gib - asked, "unused")]))
            rows.append((_gpus(count), low.kv_cache_tokens, high.kv_cache_tokens, self._tokens(each), meaning, 1.0))
        spec = strips_spec(2, limit, "GiB of one GPU", "no guess")
        return View(
            answer=html("{} {}", *(self._said(count, each) for count, each in found.items())),
            rows=charts.strips_rows(strips, limit=limit) | spans_rows(rows, top, self.guess, (s.max_model_len,)),
            chart=[spec, spans_spec(tuple(map(_gpus, self.counts)), top,
                                    f"tokens in the cache (line: one of {s.max_model_len:,})")],
            table=table([self._cells(count, each, s) for count, each in found.items()], [
                Col("gpus", "GPUs", "text"), Col("weights", "weights", ".2f", "GiB each"), Col("rest", "the rest", unit="GiB each"),
                Col("left", "for the cache", unit="GiB each"), Col("kib", "a token", unit="KiB each"), Col("tokens"),
                Col("x", "concurrency"), Col("check", "memory checks", "text")]),
            note=html("{} The strips show the least that is left.", _settles(found[2])) if s.other_from == ASSUMED else
            html("With {} for the rest the figures are exact, and only as good as it.",
                 mark(f"{s.other_gib:g} GiB", "assumed")),
            description=["; ".join(strip[0] for strip in strips) + ".",
                         "; ".join(f"{row[0]}: {row[3]}" for row in rows) + "."])

    @staticmethod
    def _sizes(s, count):
        if s.other_from == TYPED:
            return (on_a_card(SEVENTY, s.gpu_gib, count, 0.92, "auto", s.weights_gib, s.other_gib,
                              max_model_len=s.max_model_len),) * 3
        return with_band(s.gpu_gib, count, s.weights_gib, s.max_model_len)

    @staticmethod
    def _tokens(sizes):
        low, high = sizes[0].kv_cache_tokens, sizes[2].kv_cache_tokens
        if high <= 0:
            return "no room for a cache"
        return f"{low:,} tokens" if sizes[0] is sizes[2] else f"{_span(low, high)} tokens"

    def _said(self, count, sizes):
        low, _, high = sizes
        length = low.max_model_len
        word = ("it passes vLLM's memory checks" if low.fits else "too close to call" if high.fits else
                f"refused at {length:,}" + (f" ({low.estimated_max_model_len:,} would pass" + (")" if low is high else " even at the least)")
                   if low.estimated_max_model_len else ""))
        if high.available_bytes <= 0:
            word = "nothing is left for the cache"
        return html("{}: {}, {}.", _gpus(count), strong(self._tokens(sizes)), word)

    @staticmethod
    def _cells(count, sizes, s):
        low, typical, high = sizes
        exact = low is high
        word = "passes" if low.fits else "too close to call" if high.fits else "refused"
        rest = [(taken(each) - at(each.memory.weights_bytes, "typical")) / GiB for each in (high, low)]
        return {"gpus": str(count), "weights": s.weights_gib / count, "rest": mark(interval(*rest, 1), "assumed"),
                "left": mark(interval(low.available_bytes / GiB, high.available_bytes / GiB, 2), "assumed"),
                "kib": typical.plan.bytes_per_token // 1024, "check": word,
                "tokens": mark(f"{low.kv_cache_tokens:,}" if exact else _span(low.kv_cache_tokens, high.kv_cache_tokens), "assumed"),
                "x": mark(f"{low.max_concurrency:.1f}x" if exact else f"{_span(low.max_concurrency, high.max_concurrency)}x", "assumed")}


def _gib(low, high) -> str:
    return f"{interval(max(0, low.available_bytes) / GiB, max(0, high.available_bytes) / GiB, 1)} GiB"


@lru_cache(maxsize=512)
def with_band(gpu_gib: float, count: int, weights_gib: float, max_model_len: int):
    """Least, typical and most of the note's row where the rest is what other launches over NVLink took.

    >>> [round(each.available_bytes / GiB, 1) for each in with_band(80.0, 4, 131.5, 131072)]
    [33.6, 37.0, 39.7]
    """
    engine = Engine(vllm_version=NOTE_VERSION, tensor_parallel_size=count, max_model_len=max_model_len)
    memory = MemoryBudget(gib(gpu_gib), gib(weights_gib / count), **reserve_of(SEVENTY, engine))
    return ranged(model_of(SEVENTY), engine, memory)
