"""Notebook 11, questions 7 to 10, 12 and 15: where the memory goes, and how to ask for it.

Figures that a log printed are constants here and underlined where they are shown; all else is computed.
"""

from __future__ import annotations

import math
from functools import cache

from kvlib import catalog
from kvlib.capacity import Sizing, bytes_per_token, size
from kvlib.engine import Engine
from kvlib.fit import fit
from kvlib.lesson import AVAILABLE_GIB
from kvlib.memory import at
from kvlib.model import from_layers
from kvlib.panels.budget_facts import FREE, TOTAL, gb10_asked, gb10_at, gb10_launch
from kvlib.panels.parallel_facts import peak_parts
from kvlib.panels.question_base import PASSES, REFUSED, guess, log, model, outcome, right, sized
from kvlib.tables import Col, Html, Table, mark, table
from kvlib.units import GiB


def same_pool(lengths=(40_960, 20_480, 10_240, 5_120)) -> Table:
    """Qwen3-8B on the GB10: the pool does not follow max_model_len."""
    rows = []
    for length in lengths:
        s = sized("Qwen3-8B", AVAILABLE_GIB, vllm_version="0.28", max_model_len=length)
        rows.append({"length": length, "blocks": s.num_gpu_blocks, "size": s.kv_cache_tokens, "requests": s.max_concurrency})
    return table(
        rows,
        [
            Col("length", "max_model_len"),
            Col("blocks", "blocks in the pool"),
            Col("size", "tokens"),
            Col("requests", "concurrency", ".2f"),
        ],
        caption="Qwen3-8B on a GB10",
    )


REPORT_7 = ((20_000, 17.06, 1_952), (29_000, 17.98, 1_478), (35_000, 15.05, None))  # length, peak GiB, blocks printed


def profiled() -> Table:
    """Llama-3.1-8B on an RTX 3090 with an early release: a longer request without chunked prefill is a larger dummy pass."""
    rows, each = [], 16 * bytes_per_token(model("Llama-3.1-8B"))
    for length, peak, blocks in REPORT_7:
        pool = 0.90 * 23.58 - peak - 0.35
        held = blocks if blocks is not None else int(pool * GiB // each)
        tokens = 16 * held
        rows.append(
            {
                "length": length,
                "peak": log(f"{peak:.2f}"),
                "pool": f"{pool:.2f}",
                "blocks": log(f"{held:,}") if blocks else f"about {held:,}",
                "tokens": f"{tokens:,}",
                "outcome": log("starts" if tokens >= length else "refused"),
            }
        )
    return right(
        table(
            rows,
            [
                Col("length", "max_model_len"),
                Col("peak", "peak in the log", unit="GiB"),
                Col("pool", "0.90 × 23.58 − peak − 0.35", unit="GiB"),
                Col("blocks", "blocks of 2 MiB"),
                Col("tokens", "tokens"),
                Col("outcome", "report"),
            ],
            caption="Llama-3.1-8B on an RTX 3090, reported in December 2024",
        )
    )


def held_elsewhere(available_gib=100.0) -> Table:
    """The GB10's launch again where less memory is available at start, because something else holds it."""
    share = math.floor(available_gib / TOTAL * 100) / 100
    rows = []
    for what, free, asked in (
        ("as in the log", FREE, 0.92),
        ("something else holds memory", available_gib, 0.92),
        ("the same, a smaller share", available_gib, share),
        ("after it was stopped", FREE, 0.92),
    ):
        found = gb10_launch(asked, FREE - free)
        rows.append(
            {
                "what": what,
                "free": (log if free == FREE else guess)(f"{free:.2f}"),
                "share": f"{asked:.2f}",
                "asked": f"{gb10_asked(asked):.2f}",
                "outcome": PASSES if found.fits else REFUSED,
                "tokens": _span(asked) if found.fits else "–",
            }
        )
    return right(
        table(
            rows,
            [
                Col("what", "at start", "text"),
                Col("free", "available", unit="GiB"),
                Col("share", "share"),
                Col("asked", "requested", unit="GiB"),
                Col("outcome"),
                Col("tokens"),
            ],
            caption=f"Qwen3-8B on a GB10 of {TOTAL} GiB",
        )
    )


def _span(share: float) -> str:
    low, high = (found.kv_cache_tokens for found in gb10_at(share))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def shares(chosen=(0.92, 0.87, 0.85, 0.80, 0.70)) -> Table:
    """The GB10: what each share leaves to the rest of the machine, and what it costs in tokens."""
    rows = []
    for share in chosen:
        asked = gb10_asked(share)
        rows.append(
            {"share": share, "asked": asked, "beside": TOTAL - asked, "spare": FREE - asked, "tokens": Html(_span(share))}
        )
    return right(
        table(
            rows,
            [
                Col("share", "gpu_memory_utilization", ".2f"),
                Col("asked", "requested", ".2f", "GiB"),
                Col("beside", "left to all others", ".2f", "GiB"),
                Col("spare", "of it free at start", ".2f", "GiB"),
                Col("tokens", "tokens of Qwen3-8B"),
            ],
            caption="A GB10: 121.63 GiB, of which 113.91 were free before vLLM",
        )
    )


def fixed_cache(cache_gib=20, blocks=2_560) -> Table:
    """The cache set by hand, in bytes and in blocks."""
    launches = [
        ({"kv_cache_memory_bytes": cache_gib * GiB}, f"--kv-cache-memory-bytes {cache_gib * GiB}"),
        ({"kv_cache_memory_bytes": cache_gib * GiB, "gpu_memory_utilization": 0.5}, "the same, --gpu-memory-utilization 0.5"),
        ({"num_gpu_blocks_override": blocks}, f"--num-gpu-blocks-override {blocks}"),
        ({"num_gpu_blocks_override": blocks + 1}, f"--num-gpu-blocks-override {blocks + 1}"),
    ]
    rows = []
    for flags, said in launches:
        s = size(model("Qwen3-8B"), Engine(max_model_len=40_960, **flags))
        rows.append(
            {
                "flag": said,
                "blocks": s.num_gpu_blocks,
                "tokens": s.kv_cache_tokens,
                "requests": f"{s.max_concurrency:.2f}x",
                "gib": s.available_bytes / GiB,
                "outcome": outcome(s),
            }
        )
    return table(
        rows,
        [
            Col("flag", fmt="text"),
            Col("blocks"),
            Col("tokens"),
            Col("requests", "at 40,960"),
            Col("gib", "cache", ".2f", "GiB"),
            Col("outcome", fmt="text"),
        ],
        caption="Qwen3-8B, vLLM 0.33",
    )


def where_it_went(max_num_seqs=(1_024, 256), max_num_batched_tokens=(8_192, 2_048)) -> Table:
    """Gemma-3-27b on an H100: the log's own terms, and the activation peak by the fit for other batches."""
    row = next(
        row for row in catalog.table("reserve.csv") if row["model"] == "google/gemma-3-27b-it" and row["vllm_version"] == "0.19.0"
    )
    weights, peak, other, cache = (
        float(row[key]) for key in ("weights_gib", "activation_peak_gib", "non_torch_gib", "available_kv_gib")
    )
    rows = [
        {
            "set": "the log: 1,024 sequences, 8,192 tokens",
            "sampler": "–",
            "forward": "–",
            "peak": log(f"{peak:.2f}"),
            "cache": log(f"{cache:.2f}"),
            "gain": "–",
        }
    ]
    for seqs, batched in (
        (max_num_seqs[0], max_num_batched_tokens[0]),
        (max_num_seqs[1], max_num_batched_tokens[0]),
        (max_num_seqs[1], max_num_batched_tokens[1]),
    ):
        sampler, forward = (part / GiB for part in peak_parts("Gemma-3-27b", 1, seqs, batched))
        left = cache + peak - max(sampler, forward)
        rows.append(
            {
                "set": f"{seqs:,} sequences, {batched:,} tokens",
                "sampler": guess(f"{sampler:.2f}"),
                "forward": guess(f"{forward:.2f}"),
                "peak": guess(f"{max(sampler, forward):.2f}"),
                "cache": guess(f"{left:.2f}"),
                "gain": guess(f"{left - cache:+.2f}"),
            }
        )
    asked = weights + peak + other + cache
    return right(
        table(
            rows,
            [
                Col("set", "Gemma-3-27b, one H100", "text"),
                Col("sampler", "sampler", unit="GiB"),
                Col("forward", "forward pass", unit="GiB"),
                Col("peak", "activation peak", unit="GiB"),
                Col("cache", "left for the cache", unit="GiB"),
                Col("gain", "more than now", unit="GiB"),
            ],
            caption=f"{asked:.2f} GiB requested = {weights} weights + {peak} activations + {other} other + {cache} cache",
        )
    )


REPORT_15 = {"needed": "22.5", "available": 17.39, "estimate": 810_208}  # Mistral-Small-4 on two H100


@cache
def planned() -> tuple[Sizing, Sizing]:
    """The launch that a planner chose, its layers declared by hand, at both ends of the printed memory."""
    layers = from_layers(
        [{"kind": "mla", "count": 36, "kv_lora_rank": 256, "qk_rope_head_dim": 64}],
        max_position_embeddings=1_048_576,
        name="Mistral-Small-4-119B",
    )
    engine = Engine(tensor_parallel_size=2, max_model_len=1_048_576, vllm_version="0.23")
    return tuple(
        size(layers, engine, available_bytes=round(gib * GiB))
        for gib in (REPORT_15["available"] - 0.005, REPORT_15["available"] + 0.005)
    )


def planner() -> Table:
    """A planner's choice, refused: what the log printed, and what follows from the layers."""
    low, high = planned()
    rows = [
        {
            "what": "one token, on each of two GPUs",
            "log": "–",
            "ours": f"{bytes_per_token(low.model, low.engine):,} B",
            "why": "36 × (256 + 64) × 2 B: a latent row is copied",
        },
        {
            "what": "needed for 1,048,576 tokens",
            "log": log(f"{REPORT_15['needed']} GiB"),
            "ours": f"{low.refusal.needed_gib} GiB",
            "why": "1,048,576 × 23,040 B",
        },
        {
            "what": "left for the cache",
            "log": log(f"{REPORT_15['available']} GiB"),
            "ours": "–",
            "why": "the planner had assumed 2.3 GiB of reserve a GPU",
        },
        {
            "what": "longest that fits",
            "log": log(f"{REPORT_15['estimate']:,}"),
            "why": "17.39 GiB, as rounded, in blocks",
            "ours": f"{low.estimated_max_model_len:,} to {high.estimated_max_model_len:,}",
        },
    ]
    return table(
        rows,
        [
            Col("what", "Mistral-Small-4 on two H100", "text"),
            Col("log", "the log", "text"),
            Col("ours", "worked out", "text"),
            Col("why", "from", "text"),
        ],
    )


def cards(
    name="Qwen3-30B-A3B", command="--max-model-len 32768", gpus=("RTX 4090", "L40S", "H100 SXM 80GB", "H200 SXM 141GB")
) -> Table:
    """A launch that was never made, on several cards: verdict and range."""
    rows = []
    for gpu in gpus:
        found = fit(name, command, gpu=gpu)
        low, high = (at(found.terms["weights_bytes"].value, side) / GiB for side in ("low", "high"))
        weights = f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"
        kind = found.terms["weights_bytes"].kind
        rows.append(
            {
                "gpu": gpu,
                "total": found.memory.total_bytes / GiB,
                "weights": mark(weights, kind if kind in ("measured", "assumed") else "computed"),
                "verdict": found.verdict.phrase,
                "requests": guess(found.say(found.low.max_concurrency, found.high.max_concurrency))
                if found.verdict.word != "refused"
                else "–",
            }
        )
    return right(
        table(
            rows,
            [
                Col("gpu", "GPU", "text"),
                Col("total", "memory", ".2f", "GiB"),
                Col("weights", unit="GiB"),
                Col("verdict"),
                Col("requests", "requests of 32,768 tokens"),
            ],
            caption=f"{name}, vllm serve {command}",
        )
    )
