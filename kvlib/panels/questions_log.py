"""Notebook 11, questions 1 to 5: what the lines of a log say, and why they change.

Figures that a log printed are constants here and underlined where they are shown; all else is computed.
"""

from __future__ import annotations

import math
from functools import cache

from kvlib import catalog
from kvlib.capacity import Sizing, size
from kvlib.engine import Engine
from kvlib.lesson import AVAILABLE_GIB
from kvlib.panels.question_base import HYBRID, HYBRID_GIB, log, model, outcome, sized
from kvlib.remedies import remedies
from kvlib.tables import Col, Table, html, table
from kvlib.units import GiB
from kvlib.versions import CHANGES, parse_version


def at_once(tokens=(500, 1_000, 4_000, 16_000, 40_960), max_num_seqs=256) -> Table:
    """How many requests of each length the GB10's 681,600 tokens hold, and how many of them vLLM would run."""
    pool = sized("Qwen3-8B", AVAILABLE_GIB, vllm_version="0.28", max_model_len=40_960)
    rows = []
    for length in tokens:
        each = pool.plan.blocks_per_request(length)
        fit_ = (pool.num_gpu_blocks - 1) // each  # the null block is given to nobody
        rows.append(
            {
                "length": length,
                "blocks": each,
                "fit": fit_,
                "run": min(fit_, max_num_seqs),
                "limit": "--max-num-seqs" if fit_ > max_num_seqs else "the cache",
            }
        )
    return table(
        rows,
        [
            Col("length", "tokens of each request"),
            Col("blocks", "blocks each"),
            Col("fit", "fit at once"),
            Col("run", f"run, with --max-num-seqs {max_num_seqs}"),
            Col("limit", "what limits", "text"),
        ],
        caption=f"Qwen3-8B on a GB10: {pool.kv_cache_tokens:,} tokens, {pool.max_concurrency:.2f}x at 40,960",
    )


REPORT_2 = {"needed": "23.25", "available": "22.5", "estimate": 190_272}  # MiniMax-M2.7-AWQ on two GB10


@cache
def refused() -> Sizing:
    """The refused launch of MiniMax-M2.7 on two GB10: the least pool that prints its estimate."""
    flags = {"tensor_parallel_size": 2, "max_model_len": 196_608, "vllm_version": "0.29", "gpu_memory_utilization": 0.8}
    each = sized("MiniMax-M2.7", 1, **flags).bytes_per_block
    return size(model("MiniMax-M2.7"), Engine(**flags), available_bytes=(REPORT_2["estimate"] // 16 + 1) * each)


def ways_out() -> Table:
    """The refusal as printed and as recomputed, and what each change brings."""
    was = refused()
    total, share = catalog.gpu("GB10 (DGX Spark)").total_bytes, 0.8
    missing = -was.headroom_bytes
    more = math.ceil(100 * (share + missing / total)) / 100
    after = size(was.model, was.engine, available_bytes=was.available_bytes + math.floor((more - share) * total))
    rows = [
        {
            "do": "as launched",
            "outcome": html(
                "needs {} GiB, has {}; estimate {}",
                log(was.refusal.needed_gib),
                log(was.refusal.available_gib),
                log(f"{was.refusal.estimated_max_model_len:,}"),
            ),
            "requests": "–",
            "costs": "–",
        }
    ]
    for remedy in remedies(was):
        flag = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in remedy.flags.items())
        rows.append(
            {
                "do": flag,
                "outcome": outcome(remedy.sizing),
                "requests": f"{remedy.sizing.max_concurrency:.2f}",
                "costs": remedy.gives_up,
            }
        )
    auto = size(was.model, was.engine.replace(max_model_len=-1), available_bytes=was.available_bytes)
    rows.insert(
        2,
        {
            "do": "--max-model-len -1 (auto)",
            "outcome": f"{outcome(auto)}, at {auto.max_model_len:,}",
            "requests": f"{auto.max_concurrency:.2f}",
            "costs": "a length that moves with the memory left",
        },
    )
    rows.append(
        {
            "do": f"--gpu-memory-utilization {more:.2f}",
            "outcome": outcome(after),
            "requests": f"{after.max_concurrency:.2f}",
            "costs": f"{(more - share) * total / GiB:.2f} GiB of the machine's rest",
        }
    )
    return table(
        rows,
        [
            Col("do", "change", "text"),
            Col("outcome", fmt="text"),
            Col("requests", "requests of that length", "text"),
            Col("costs", fmt="text"),
        ],
        caption="MiniMax-M2.7 (AWQ) on two GB10, 0.29, share 0.80, 196,608 tokens asked for",
    )


def printed_by_length(lengths=(8_192, 32_768, 132_096, 262_144), name="Qwen3.8-27B", available_gib=HYBRID_GIB, **flags) -> Table:
    """The printed size over max_model_len, with the same memory."""
    rows = []
    for length in lengths:
        s = sized(name, available_gib, max_model_len=length, **(flags or HYBRID))
        state = sum(group.blocks_per_request for group in s.groups if not group.is_attention)
        rows.append(
            {
                "length": length,
                "blocks": f"{s.blocks_per_request - state:,} + {state}",
                "requests": s.max_concurrency,
                "size": s.kv_cache_tokens,
                "kib": s.available_bytes / s.kv_cache_tokens / 1024,
            }
        )
    return table(
        rows,
        [
            Col("length", "max_model_len"),
            Col("blocks", "blocks a request: tokens + states"),
            Col("requests", "concurrency", ".2f"),
            Col("size", "printed tokens"),
            Col("kib", "pool ÷ printed tokens", ".1f", "KiB"),
        ],
        caption=f"{name}, {available_gib} GiB on each of two A100, FP8 cache",
    )


REPORT_4 = {"blocks": 1_487, "tokens": 290_864, "concurrency": "33.04"}  # Qwen3.5-27B on an H20, 0.19.0


def two_prints(blocks=REPORT_4["blocks"], versions=("0.19.0", "0.20.1", "0.33")) -> Table:
    """One pool of Qwen3.5-27B as older and newer releases print it."""
    flags = {"max_model_len": 32_768, "enable_prefix_caching": False}
    each = sized("Qwen3.5-27B", 1, **flags).bytes_per_block
    rows = []
    for version in versions:
        s = size(model("Qwen3.5-27B"), Engine(vllm_version=version, **flags), available_bytes=blocks * each)
        old = not parse_version(version).has("tokens_from_concurrency")
        rows.append(
            {
                "version": version,
                "blocks": s.num_gpu_blocks,
                "requests": log(f"{s.max_concurrency:.2f}x") if old else f"{s.max_concurrency:.2f}x",
                "size": log(f"{s.kv_cache_tokens:,}") if old else f"{s.kv_cache_tokens:,}",
                "how": f"{blocks:,} // {len(s.groups)} groups × {s.block_size}" if old else f"{s.max_concurrency:.4f} × 32,768",
            }
        )
    return table(
        rows,
        [
            Col("version", "vLLM", "text"),
            Col("blocks"),
            Col("requests", "concurrency at 32,768"),
            Col("size", "printed tokens"),
            Col("how", "that is", "text"),
        ],
        caption="Qwen3.5-27B, prefix caching off: one pool, two prints",
    )


def which_line(tokens: int, concurrency: float, length: int) -> str:
    """Which of two log lines to believe, in a sentence.

    >>> which_line(129_472, 1.97, 262_144)[:56]
    '1.97 × 262,144 = 516,424, not 129,472: an older print. T'
    """
    product = concurrency * length
    if abs(product - tokens) <= 0.005 * length + 1:
        return f"{concurrency} × {length:,} = {product:,.0f}: both lines say the same, within rounding."
    return (
        f"{concurrency} × {length:,} = {product:,.0f}, not {tokens:,}: an older print. Trust the concurrency: room for "
        f"{product:,.0f} tokens of requests that long."
    )


TOLD = {  # rule: (what is said of it, the kinds of layer that it concerns; none: all)
    "utilization_092": ("share 0.92 (before: 0.90)", ()),
    "graph_estimate": ("graphs subtracted", ()),
    "tokens_from_concurrency": ("the token line is computed another way", ()),
    "tokens_in_flight": ("windows reserve every token in flight", ("sliding", "chunked")),
    "null_block_held_back": ("the check holds one block back", ()),
    "mamba2_keeps_three": ("a third state", ("mamba2",)),
    "gdn_checkpoints": ("a third state on Hopper", ("gdn",)),
}


def changed_between(before: str, after: str, kinds) -> str:
    """What changed for a model with such layers after one release and up to another."""
    first, last = (parse_version(version).number for version in (before, after))
    said = [TOLD[change.rule] for change in CHANGES if first < change.since <= last and change.rule in TOLD]
    return "; ".join(words for words, concerns in said if not concerns or set(concerns) & set(kinds)) or "–"


def after_upgrade(
    name="Gemma-4-31B", available_gib=50, versions=("0.19.1", "0.20.0", "0.21.0", "0.25.1", "0.26.0", "0.33.0"), **flags
) -> Table:
    """One pool through the releases: what is printed, and what changed on the way."""
    flags = flags or {"max_model_len": 131_072, "max_num_batched_tokens": 2_048}
    rows, before = [], None
    for version in versions:
        s = sized(name, available_gib, vllm_version=version, **flags)
        rows.append(
            {
                "version": version,
                "blocks": s.num_gpu_blocks,
                "each": s.blocks_per_request,
                "requests": f"{s.max_concurrency:.2f}x",
                "size": s.kv_cache_tokens,
                "needed": s.needed_bytes / GiB,
                "what": changed_between(before, version, s.model.kinds) if before else "–",
            }
        )
        before = version
    return table(
        rows,
        [
            Col("version", "vLLM", "text"),
            Col("blocks"),
            Col("each", "blocks a request"),
            Col("requests", "concurrency"),
            Col("size", "printed tokens"),
            Col("needed", "one request needs", ".2f", "GiB"),
            Col("what", "what changed", "text"),
        ],
        caption=f"{name}, {available_gib} GiB, {flags['max_model_len']:,} tokens, {flags['max_num_batched_tokens']:,} a step",
    )
