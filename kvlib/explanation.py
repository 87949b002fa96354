"""Recompute every figure of a start-up log, and say why two of them disagree."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from . import catalog
from .capacity import size_plan
from .command import engine_from_flags
from .config import load_model
from .engine import Engine
from .errors import SizingError
from .memory import requested_bytes
from .model import Model
from .pool import Plan, plan
from .units import GiB, gib_text
from .versions import OLDEST, parse_version
from .vllm_log import Launch, Log, Printed, process, read_log

VERDICTS = ("exact", "within rounding", "off")  # from best to worst; "not checked" stands beside them


class Line(NamedTuple):
    """One figure of the log: as printed, as recomputed, and what the comparison says."""

    name: str
    text: str
    printed: Any
    recomputed: Any
    verdict: str
    reason: str


class Explanation(NamedTuple):
    """All lines of a launch, the worst verdict, and what the log proves by itself (``implied``)."""

    lines: tuple[Line, ...]
    verdict: str
    launch: Launch
    model: Model | None
    engine: Engine | None
    implied: dict
    notes: tuple[str, ...]


def explain(log: Log | str, model: Any = None, engine: Engine | None = None, launch: Launch | None = None) -> Explanation:
    """Explain one launch of a log, the last one unless another is given.

    Parameters
    ----------
    model : a Model or anything :func:`kvlib.load_model` takes; without it, the model that the log names is looked
        for in the catalogue.
    engine : the flags; without it, those the log shows.

    A verdict is "exact", "within rounding" (some pool that prints the same GiB gives the figure), "off" or
    "not checked" (the log or the model does not say enough).

    >>> from kvlib import load_model, read_log
    >>> x = explain(read_log("Available KV cache memory: 93.61 GiB\\nGPU KV cache size: 681,600 tokens, "
    ...                      "Maximum concurrency for 40,960 tokens per request: 16.64x"), model="Qwen3-8B")
    >>> x.verdict
    'within rounding'
    """
    log = read_log(log) if isinstance(log, str) else log
    launch = launch or log.last
    notes: list[str] = []
    model = _model(launch, model, notes)
    engine = _engine(launch, engine, notes)
    made = _plan(model, engine, notes)
    lines = [*_memory_lines(launch)]
    if made is not None:
        lines += [*_model_lines(launch, made)]
    else:
        lines += [*_bare_lines(launch)]
    checked = [line.verdict for line in lines if line.verdict in VERDICTS]
    verdict = max(checked, key=VERDICTS.index) if checked else "not checked"
    return Explanation(tuple(lines), verdict, launch, model, engine, _implied(launch, made), tuple(notes))


# --- model and flags -----------------------------------------------------------------------------------------

def _model(launch: Launch, given: Any, notes: list[str]) -> Model | None:
    if given is not None:
        return given if isinstance(given, Model) else load_model(given)
    if not launch.model:
        notes.append("the log does not name its model; choose one, or paste its config.json")
        return None
    for name in _names(launch.model):
        try:
            known = catalog.model_name(name)
            model = load_model(known)
        except SizingError:
            continue
        if name != launch.model:
            notes.append(f"{launch.model[:80]} is read as {known} of the catalogue; paste its config.json to be sure")
        return model
    notes.append(f"the log's model {launch.model[:80]} is not in the catalogue; paste its config.json beside the log")
    return None


_TUNED = re.compile(r"-(?:instruct|chat|it|hf|base|fp8|fp8-dynamic|awq|gptq|int4|int8|w4a16|w8a8|nvfp4|fp4|bf16|4bit|8bit|dynamic|"
                    r"gptq-int4|gptq-int8|quantized\.\w{2,6})$", re.IGNORECASE)


def _names(name: str) -> Iterator[str]:
    """What the model may be called in the catalogue: as it stands, without its folders, without what does not
    change its cache (tuning, and the width of its weights)."""
    yield name
    cached = re.search(r"models--([\w.-]{1,100})--([\w.-]{1,100})/", name + "/")
    last = cached[2] if cached else name.rstrip("/").rsplit("/", 1)[-1]
    yield last
    for _ in range(4):
        shorter = re.sub(r"^Meta-", "", _TUNED.sub("", last))
        if shorter == last:
            return
        last = shorter
        yield last


def engine_of(launch: Launch, notes: list[str] | None = None) -> Engine:
    """The engine that a launch's own flags and lines describe. Raises EngineError on flags vLLM would refuse."""
    notes = notes if notes is not None else []
    flags = {name: value for name, value in launch.flags.items() if name in Engine.__dataclass_fields__
             or name == "speculative_config"}
    flags = {name: value for name, value in flags.items() if name not in ("gpu", "vllm_version")}
    if launch.max_num_batched_tokens and "max_num_batched_tokens" not in flags:
        flags["max_num_batched_tokens"] = launch.max_num_batched_tokens[-1].value
    if launch.backend_block_size and not flags.get("block_size"):
        flags["block_size"] = launch.backend_block_size[-1].value
    device = str(flags.pop("device", launch.device or "cuda")).lower()
    flags["device"] = "cpu" if device == "cpu" or launch.device == "CPU" else "cuda"
    if flags.get("dtype") not in ("bfloat16", "float16", "float32", "half", "float"):
        flags.pop("dtype", None)
    if flags.get("attention_backend") is None and launch.backend in ("FLASHINFER", "FLASHMLA", "FLASH_ATTN_MLA",
                                                                     "TRITON_MLA", "FLASHINFER_MLA", "CUTLASS_MLA"):
        flags["attention_backend"] = launch.backend
    flags["vllm_version"] = _version(launch, notes)
    engine, other = engine_from_flags(flags)
    notes.extend(other.notes)
    return engine


def _version(launch: Launch, notes: list[str]) -> str:
    if launch.vllm_version is None:
        one_line = any("KV cache size" in text and "Maximum concurrency" in text for text in launch.texts.values())
        notes.append("the log does not say its vLLM version; taken as 0.33" if one_line else
                     "the log does not say its vLLM version; taken as 0.33, although older ones print two lines")
        return "0.33"
    try:
        version = parse_version(launch.vllm_version)
    except SizingError:
        notes.append(f"the version {launch.vllm_version} is not understood; taken as 0.33")
        return "0.33"
    if version.number < OLDEST:
        notes.append(f"vLLM {version} is older than the rules here; explained by those of 0.18")
        return "0.18.0"
    return str(version)


def _engine(launch: Launch, given: Engine | None, notes: list[str]) -> Engine | None:
    try:
        engine = given or engine_of(launch, notes)
        if parse_version(engine.vllm_version).number < OLDEST:
            notes.append(f"vLLM {engine.vllm_version} is older than the rules here; explained by those of 0.18")
            engine = engine.replace(vllm_version="0.18.0")
        length = launch.max_concurrency_len or ()
        if engine.max_model_len is None and length and not launch.auto_fit_to:
            engine = engine.replace(max_model_len=length[-1].value)
        elif engine.max_model_len is None and launch.refusal and launch.refusal.max_model_len:
            engine = engine.replace(max_model_len=launch.refusal.max_model_len)
        elif engine.max_model_len is None and launch.max_model_len and not launch.auto_fit_to:
            engine = engine.replace(max_model_len=launch.max_model_len[-1].value)
        return engine
    except SizingError as error:
        notes.append(f"the flags in the log are not ones to size by: {error}")
        return None


def _plan(model: Model | None, engine: Engine | None, notes: list[str]) -> Plan | None:
    if model is None or engine is None:
        return None
    try:
        return plan(model, engine)
    except SizingError as error:
        notes.append(str(error))
        return None


# --- what needs no model -------------------------------------------------------------------------------------

def _inside(value_low: float, value_high: float, printed: Printed) -> bool:
    """Do the interval of the recomputed and that of the printed figure meet?"""
    return value_low <= printed.high + 1e-9 and printed.low - 1e-9 <= value_high


def _line(launch: Launch, name: str, printed: Printed, recomputed: str, agrees: bool, reason: str,
          best: str = "within rounding") -> Line:
    return Line(name, launch.texts.get(printed.line, "").strip()[:400], printed.value, recomputed,
                best if agrees else "off", reason)


def _memory_lines(launch: Launch) -> Iterator[Line]:
    """The sums a log allows by itself: the share asked for, and what is left of it."""
    for total in launch.total_gib[:1]:
        for requested in launch.requested_gib[:1]:
            for share in launch.utilization[:1]:
                low, high = (requested_bytes(round(edge * GiB), share.value) / GiB for edge in (total.low, total.high))
                yield _line(launch, "requested", requested, f"{total.text} × {share.text} = {low:.3f} to {high:.3f} GiB",
                            _inside(low, high, requested), "total memory × gpu_memory_utilization, rounded up")
    for available in launch.available_kv_cache_gib:
        requested = _of(launch.requested_gib, available)
        if requested is None:
            continue
        used = _of(launch.non_kv_cache_gib, available)
        what = "requested − non-KV cache memory"
        if used is None:
            weights, peak = _of(launch.weights_gib, available), _of(launch.peak_activation_gib, available)
            other = _of(launch.non_torch_gib, available)
            consumed = _of(launch.consumed_gib, available)
            parts = [consumed, peak] if consumed and peak else [weights, peak, other] if weights and peak and other else []
            if not parts:
                continue
            what = "requested − " + (" − ".join(("consumed", "peak activation") if consumed else
                                                ("weights", "peak activation", "non-torch")))
            used = Printed(sum(p.value for p in parts), sum(p.low for p in parts), sum(p.high for p in parts))
        low, high = requested.low - used.high, requested.high - used.low
        graphs = _of(launch.cuda_graph_estimate_gib, available)
        agrees = _inside(low, high, available)
        reason = what
        if not agrees and graphs is not None:
            agrees = _inside(low - graphs.high, high - graphs.low, available)
            reason = f"{what} − the CUDA graph estimate of {graphs.text} GiB" if agrees else reason
        if not agrees:
            gap = (low + high) / 2 - available.value
            reason += f"; {abs(gap):.2f} GiB {'less' if gap > 0 else 'more'} than that was left"
            reason += " (a CUDA graph estimate of that size would close it)" if 0 < gap < 6 else ""
        yield _line(launch, "available", available, f"{low:.3f} to {high:.3f} GiB", agrees, reason)


def _of(figures: list[Printed], like: Printed) -> Printed | None:
    """The figure of the same worker, or the only one there is."""
    same = [figure for figure in figures if figure.worker == like.worker]
    return same[0] if same else figures[0] if len(figures) == 1 else None


def print_formula(launch: Launch) -> str | None:
    """Which formula the token figure obeys: "concurrency × length", "blocks", or None where the log cannot tell."""
    if not (launch.kv_cache_tokens and launch.max_concurrency and launch.max_concurrency_len):
        return None
    tokens, length = launch.kv_cache_tokens[-1].value, launch.max_concurrency_len[-1].value
    concurrency = launch.max_concurrency[-1]
    agrees = _inside(tokens / length, (tokens + 1) / length, concurrency)
    return "concurrency × length" if agrees else "blocks"


def _bare_lines(launch: Launch) -> Iterator[Line]:
    """The figures that nothing can be held against without a model, and the one pair that can."""
    formula = print_formula(launch)
    for tokens in launch.kv_cache_tokens:
        per_token = ""
        if launch.available_kv_cache_gib:
            smallest = min(launch.available_kv_cache_gib, key=lambda printed: printed.value)
            low, high = (edge * GiB / tokens.value for edge in (smallest.low, smallest.high))
            per_token = f"{low:,.0f} to {high:,.0f} bytes of pool for each printed token"
        yield Line("kv_cache_tokens", launch.texts.get(tokens.line, "")[:400], tokens.value, per_token or None,
                   "not checked", "the model is not known")
    if formula:
        concurrency = launch.max_concurrency[-1]
        tokens, length = launch.kv_cache_tokens[-1].value, launch.max_concurrency_len[-1].value
        agrees = formula == "concurrency × length"
        yield _line(launch, "max_concurrency", concurrency, f"{tokens:,} / {length:,} = {tokens / length:.4f}", agrees,
                    "tokens are concurrency × max_model_len, as printed since 0.20.1" if agrees else
                    "tokens are not concurrency × max_model_len: the print of 0.20.0 and before, where a hybrid's or "
                    "window model's two figures do not belong together")
    if launch.refusal and launch.refusal.needed_gib:
        yield Line("refusal", launch.refusal.text[:400], launch.refusal.needed_gib.value, None, "not checked",
                   "the model is not known")


# --- what the model recomputes -------------------------------------------------------------------------------

class Pool(NamedTuple):
    """The cache of one worker, as the interval of bytes that its printed figure allows."""

    low: int
    high: int
    worker: str = ""
    text: str = ""


def _pools(launch: Launch, made: Plan) -> list[Pool]:
    """The pool of each worker that printed one; the least first. Exact where flags or bytes fix it."""
    engine = made.engine
    if engine.num_gpu_blocks_override is not None:
        exact = engine.num_gpu_blocks_override * max(made.stage_bytes_per_block)
        return [Pool(exact, exact)]
    if engine.kv_cache_memory_bytes is not None:
        return [Pool(engine.kv_cache_memory_bytes, engine.kv_cache_memory_bytes)]
    exact = {process(printed.worker): Pool(printed.value, printed.value, printed.worker, f"{printed.value:,} bytes")
             for printed in launch.kv_cache_bytes}
    pools = [exact.get(process(printed.worker)) or
             Pool(math.ceil(printed.low * GiB), math.floor(printed.high * GiB), printed.worker, f"{printed.text} GiB")
             for printed in launch.available_kv_cache_gib] or list(exact.values())
    return sorted(pools)


def _available(launch: Launch, made: Plan) -> Pool | None:
    """The pool of the deciding worker."""
    return next(iter(_pools(launch, made)), None)


def _pool_behind(launch: Launch, made: Plan, printed: Printed, length: int) -> Pool | None:
    """The pool that a token figure was made from: that of its own engine, else the least, else one that gives it."""
    pools = _pools(launch, made)
    engine = re.search(r"DP\d+", printed.worker)
    own = [pool for pool in pools if pool.worker and (
        process(pool.worker) == process(printed.worker) or engine and re.search(rf"{engine[0]}(?!\d)", pool.worker))]
    if own or len(launch.kv_cache_tokens) < 2 or len(pools) < 2:
        return next(iter(own or pools), None)
    behind, widest = blocks_behind(made, printed.value, length), max(made.stage_bytes_per_block)
    fitting = [pool for pool in pools if behind and pool.low // widest <= behind[1] and behind[0] <= pool.high // widest]
    return (fitting or pools)[0]


def tokens_of(made: Plan, num_blocks: int, max_model_len: int) -> int:
    """The token figure that this plan's version prints for a pool of ``num_blocks``."""
    if made.engine.version.has("tokens_from_concurrency"):
        return int(num_blocks / made.blocks_per_request(max_model_len) * max_model_len)
    smallest = min(group.block_size for group in made.groups)
    return num_blocks // len(made.groups) * smallest * made.engine.decode_context_parallel_size


def blocks_behind(made: Plan, tokens: int, max_model_len: int) -> tuple[int, int] | None:
    """The fewest and most blocks whose printed token figure is exactly ``tokens``; None where none is."""
    if made.engine.version.has("tokens_from_concurrency"):
        near = round(tokens / max_model_len * made.blocks_per_request(max_model_len))
    else:
        near = tokens // (min(g.block_size for g in made.groups) * made.engine.decode_context_parallel_size) * len(made.groups)
    width = 2 + len(made.groups)
    fitting = [blocks for blocks in range(max(0, near - width), near + width + 1)
               if tokens_of(made, blocks, max_model_len) == tokens]
    return (fitting[0], fitting[-1]) if fitting else None


def _model_lines(launch: Launch, made: Plan) -> Iterator[Line]:
    yield from _shape_lines(launch, made)
    length = launch.auto_fit_to[-1].value if launch.auto_fit_to else made.setup.max_model_len
    if launch.max_concurrency_len:
        length = launch.max_concurrency_len[-1].value
    pool = _available(launch, made)
    widest = max(made.stage_bytes_per_block)
    allowed = (pool[0] // widest, pool[1] // widest) if pool else None
    blocks, pinned = allowed, []
    for tokens in launch.kv_cache_tokens:
        own = _pool_behind(launch, made, tokens, length)
        line, found = _tokens_line(launch, made, tokens, length, own)
        blocks = found or blocks
        pinned.append((tokens, found))
        if own and own.worker and len(_pools(launch, made)) > 1:
            line = line._replace(reason=f"{line.reason}; pool of {own.worker[:60]}, {own.text}")
        yield line
    for printed in launch.num_gpu_blocks:
        off = any(found and not (allowed and found[0] <= allowed[1] and allowed[0] <= found[1]) for _, found in pinned)
        yield _blocks_line(launch, printed, allowed, None if off else blocks)
    for place, printed in enumerate(launch.max_concurrency):
        blocks = _beside(pinned, printed, place, len(launch.max_concurrency)) or blocks
        if blocks is None:
            yield Line("max_concurrency", launch.texts.get(printed.line, "")[:400], printed.value, None, "not checked",
                       "the log prints no memory to size by")
            continue
        needed = made.blocks_per_request(length)
        low, high = blocks[0] / needed, blocks[1] / needed
        same = f"{low:.2f}" == printed.text == f"{high:.2f}"
        agrees, reason = same or _inside(low, high, printed), "num_gpu_blocks / blocks per request"
        beside = _of(launch.kv_cache_tokens, printed)
        if not agrees:
            reason += "; " + _reason_for(made, lambda other, like=beside, figure=printed: _all_fit(launch, other, like, length)
                                         if like else _concurrency_fits(launch, other, figure, length))
        yield _line(launch, "max_concurrency", printed,
                    f"{blocks[0]:,} / {needed:,} = {low:.4f}" if blocks[0] == blocks[1] else f"{low:.4f} to {high:.4f}",
                    agrees, reason, "exact" if same else "within rounding")
    yield from _auto_fit_lines(launch, made, pool)
    yield from _refusal_lines(launch, made, pool)


def _beside(pinned: list, printed: Printed, place: int, of: int) -> tuple[int, int] | None:
    """The blocks of the token figure that stands with a concurrency: of its process, or in its place."""
    own = [found for tokens, found in pinned if tokens.worker == printed.worker]
    if len(own) == 1:
        return own[0]
    return pinned[place][1] if len(pinned) == of else None


def _shape_lines(launch: Launch, made: Plan) -> Iterator[Line]:
    """Block size, padding and groups, which do not depend on memory."""
    for printed in launch.block_size:
        yield _line(launch, "block_size", printed, f"{made.block_size_tokens:,}", printed.value == made.block_size_tokens,
                    "the smallest multiple whose page holds a state" if printed.value == made.block_size_tokens else
                    _reason_for(made, lambda other, size=printed.value: other.block_size_tokens == size), "exact")
    states = [spec for group in made.groups for spec, _ in group.specs if spec.state_blocks]
    for printed in launch.padding_percent:
        if states:
            largest = max(states, key=lambda spec: spec.unpadded_bytes)
            padding = 100 * (largest.page_size_bytes - largest.unpadded_bytes) / largest.unpadded_bytes
            yield _line(launch, "padding", printed, f"{padding:.2f}%", f"{padding:.2f}" == printed.text,
                        "attention page over state page", "exact")
    for printed in launch.padding_layers:
        widest = max(group.layers for group in made.groups)
        buckets: dict[Any, int] = {}
        for group in made.groups:
            for spec, indices in group.specs:
                buckets[spec] = buckets.get(spec, 0) + len(indices)
        empty = sorted({-layers % widest for layers in buckets.values()} - {0})
        yield _line(launch, "padding layers", printed, " or ".join(str(count) for count in empty) or "none",
                    printed.value in empty, "places that a group of layers leaves empty", "exact")
    for printed in launch.group_sizes:
        sizes = tuple(group.block_size for group in made.groups)
        agrees = tuple(printed.value) == sizes
        yield _line(launch, "kv cache group sizes", printed, str(sizes), agrees, "tokens in a block of each group", "exact")


def _tokens_line(launch: Launch, made: Plan, printed: Printed, length: int, pool: Pool | None):
    """The token figure against the pool, and the blocks it pins down."""
    allowed = (pool.low // max(made.stage_bytes_per_block), pool.high // max(made.stage_bytes_per_block)) if pool else None
    text, found = launch.texts.get(printed.line, "").strip()[:400], blocks_behind(made, printed.value, length)
    if allowed is None:
        if found is None:
            return Line("kv_cache_tokens", text, printed.value, None, "off",
                        _reason_for(made, lambda other: _all_fit(launch, other, printed, length))), None
        return Line("kv_cache_tokens", text, printed.value, f"{found[0]:,} blocks", "not checked",
                    f"{found[0]:,} blocks would print it, but the log prints no memory to size by"), found
    lowest, highest = (tokens_of(made, blocks, length) for blocks in allowed)
    recomputed = f"{lowest:,}" if lowest == highest else f"{lowest:,} to {highest:,}"
    if lowest == highest == printed.value:
        fixed = made.engine.kv_cache_memory_bytes or made.engine.num_gpu_blocks_override
        return Line("kv_cache_tokens", text, printed.value, recomputed, "exact",
                    "the flags fix the pool" if fixed else "every pool that prints these GiB gives it"), allowed
    if found and found[0] <= allowed[1] and allowed[0] <= found[1]:
        first, last = max(found[0], allowed[0]), min(found[1], allowed[1])
        widest = max(made.stage_bytes_per_block)
        low, high = max(first * widest, pool[0]) / GiB, min((last + 1) * widest, pool[1]) / GiB
        return Line("kv_cache_tokens", text, printed.value, recomputed, "within rounding",
                    f"the pool must then have been {low:.4f} to {high:.4f} GiB ({first:,} blocks)"), (first, last)
    nearest = lowest if printed.value < lowest else highest
    gap = printed.value - nearest

    reason = _reason_for(made, lambda other: _all_fit(launch, other, printed, length))
    if found and printed.value < lowest and not reason.startswith(("would", "it would")):
        pool = (found[0] * max(made.stage_bytes_per_block), (found[1] + 1) * max(made.stage_bytes_per_block))
        reason = (f"the figure belongs to a pool of {gib_text(pool[0])} GiB, not {_named(launch)}: another rank may have had less, or the two "
                  "figures are not of one launch")
    elif found and not reason.startswith(("would", "it would")):
        reason = (f"the figure belongs to a pool of {gib_text(found[0] * max(made.stage_bytes_per_block))} GiB, more "
                  "than is printed: the two figures are not of one launch")
    gone = None if reason.startswith("it would") else found  # the concurrency may still belong to these tokens
    return Line("kv_cache_tokens", text, printed.value, recomputed, "off", f"off by {_signed(gap)} tokens; {reason}"), gone


def _named(launch: Launch) -> str:
    """The pool as the log prints it."""
    smallest = min(launch.available_kv_cache_gib, key=lambda printed: printed.value, default=None)
    return smallest.text if smallest else "the one printed"


def _signed(number: int) -> str:
    return f"{number:+,}".replace("-", "−")


def _blocks_line(launch: Launch, printed: Printed, allowed, pinned) -> Line:
    text = launch.texts.get(printed.line, "").strip()[:400]
    held = pinned or allowed
    if held is None:
        return Line("num_gpu_blocks", text, printed.value, None, "not checked", "the log prints no memory to size by")
    agrees = held[0] <= printed.value <= held[1]
    return Line("num_gpu_blocks", text, printed.value, f"{held[0]:,}" if held[0] == held[1] else f"{held[0]:,} to {held[1]:,}",
                ("exact" if held[0] == held[1] else "within rounding") if agrees else "off",
                "available memory // bytes per block")


def _auto_fit_lines(launch: Launch, made: Plan, pool) -> Iterator[Line]:
    for printed in launch.auto_fit_to[-1:]:
        if pool is None:
            yield Line("auto-fit", launch.texts.get(printed.line, "")[:400], printed.value, None, "not checked",
                       "the log prints no memory to size by")
            continue
        started = plan(made.model, made.engine.replace(max_model_len=-1))
        low, high = (size_plan(started, available_bytes=_for(made, edge)).estimated_max_model_len for edge in pool[:2])
        yield _length_line(launch, "auto-fit", printed.value, launch.texts.get(printed.line, "").strip()[:400], low, high)


def _for(made: Plan, available: int) -> int | None:
    """``available_bytes`` for size_plan, which reads a fixed pool from the flags itself."""
    fixed = made.engine.kv_cache_memory_bytes
    return None if fixed is not None or made.engine.num_gpu_blocks_override is not None else available


def _length_line(launch: Launch, name: str, printed: int, text: str, low: int, high: int) -> Line:
    recomputed = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    agrees = low <= printed <= high
    verdict = ("exact" if low == high else "within rounding") if agrees else "off"
    reason = "the longest request that the start-up check lets through"
    if not agrees:
        gap = printed - (low if printed < low else high)
        reason = f"off by {_signed(gap)} tokens: the length and the memory printed do not belong together"
    return Line(name, text, printed, recomputed, verdict, reason)


def _refusal_lines(launch: Launch, made: Plan, pool) -> Iterator[Line]:
    refusal = launch.refusal
    if refusal is None or refusal.kind != "max_model_len":
        return
    if refusal.needed_gib is None:  # up to 0.7: tokens stored against the length
        for printed in launch.num_gpu_blocks[-1:]:
            tokens = printed.value * made.block_size_tokens
            yield Line("tokens in the cache", refusal.text.strip()[:400], refusal.estimated_max_model_len, f"{tokens:,}",
                       "exact" if tokens == refusal.estimated_max_model_len else "off", "blocks × tokens in a block")
        return
    sizing = size_plan(made, available_bytes=_for(made, 1 << 30))
    needed = sizing.needed_bytes / GiB
    text = refusal.text.strip()[:400]
    exact = float(gib_text(sizing.needed_bytes)) == refusal.needed_gib.value
    yield Line("needed", text, refusal.needed_gib.value, f"{needed:.4f} GiB",
               "exact" if exact else "within rounding" if _inside(needed, needed, refusal.needed_gib) else "off",
               "bytes per block × blocks of one request" if exact or _inside(needed, needed, refusal.needed_gib) else
               _reason_for(made, lambda other: _inside(*[_needed_gib(other)] * 2, refusal.needed_gib)))
    printed = refusal.available_gib
    held = made.held_back_blocks * max(made.stage_bytes_per_block)
    if pool and made.engine.kv_cache_memory_bytes is not None:
        room = (pool[0] - held, pool[1] - held)
        yield Line("available in the refusal", text, printed.value, f"{room[0] / GiB:.4f} GiB",
                   "exact" if gib_text(room[0]) == printed.text else "off", "the pool" + (" less the null block" if held else ""))
    else:
        room = (math.ceil(printed.low * GiB), math.floor(printed.high * GiB))
    if refusal.estimated_max_model_len is not None:
        low, high = (size_plan(plan(made.model, made.engine.replace(kv_cache_memory_bytes=None)),
                               available_bytes=edge + held).estimated_max_model_len for edge in room)
        line = _length_line(launch, "estimated_max_model_len", refusal.estimated_max_model_len, text, low, high)
        if line.verdict == "off":
            line = line._replace(reason=_other_pool(made, refusal.estimated_max_model_len, line.reason))
        yield line


def _needed_gib(made: Plan) -> float:
    return max(made.stage_bytes_per_block) * made.blocks_per_request(made.setup.max_model_len) / GiB


def _other_pool(made: Plan, length: int, reason: str) -> str:
    """Which pool the length would belong to."""
    blocks = made.blocks_per_request(length) + made.held_back_blocks
    widest = max(made.stage_bytes_per_block)
    return f"{reason}; it belongs to {blocks * widest / GiB:.3f} to {(blocks + 1) * widest / GiB:.3f} GiB"


# --- why it may be off ---------------------------------------------------------------------------------------

def _variants(made: Plan) -> Iterator[tuple[str, dict]]:
    """Other set-ups that could stand behind a figure, as flags; most likely first."""
    engine, model, with_flags = made.engine, made.model, dict
    if model.has_state:
        yield f"prefix caching {'off' if engine.enable_prefix_caching else 'on'}", \
            with_flags(enable_prefix_caching=not engine.enable_prefix_caching)
    yield ("a KV cache in the model's own type" if made.setup.cache_dtype.startswith("fp8") else "an FP8 KV cache"), \
        with_flags(kv_cache_dtype="bfloat16" if made.setup.cache_dtype.startswith("fp8") else "fp8")
    for tokens in (1, 2, 3, 4):
        if model.draft_layers and engine.num_speculative_tokens != tokens:
            yield f"{tokens} draft token{'s' * (tokens > 1)} from MTP (one more layer)", \
                with_flags(speculative_method="mtp", num_speculative_tokens=tokens, draft_model=None)
    if engine.num_speculative_tokens:
        yield "no draft tokens", with_flags(speculative_method=None, num_speculative_tokens=0, draft_model=None)
    if engine.version.has("tokens_from_concurrency"):
        yield "the older print (0.20.0 and before)", with_flags(vllm_version="0.20.0")
    else:
        yield "the print of 0.20.1 and later", with_flags(vllm_version="0.20.1")
    if any(kind in model.kinds for kind in ("sliding", "chunked")):
        yield "window layers kept in full", with_flags(disable_hybrid_kv_cache_manager=True)
        for batched in (2048, 4096, 8192, 16384, 32768):
            if batched != made.setup.max_num_batched_tokens:
                yield f"max_num_batched_tokens {batched:,}", with_flags(max_num_batched_tokens=batched)
        yield "asynchronous scheduling " + ("off" if engine.async_scheduling else "on"), \
            with_flags(async_scheduling=not engine.async_scheduling)
    if "gdn" in model.kinds:
        other = "triton" if made.setup.gdn_prefill_backend == "flashinfer" else "flashinfer"
        yield f"GDN prefill by {other}", with_flags(gdn_prefill_backend=other, vllm_version="0.33")
    if model.has_state:
        for dtype in ("float32", "bfloat16"):
            yield f"a recurrent state in {dtype}", with_flags(mamba_ssm_cache_dtype=dtype)
    for version in ("0.25", "0.28", "0.30", "0.32", "0.33"):
        if parse_version(version).number[:2] != engine.version.number[:2]:
            yield f"the rules of vLLM {version}", with_flags(vllm_version=version)
    for block in (16, 32, 64, 128):
        if block != made.block_size_tokens:
            yield f"blocks of {block} tokens", with_flags(block_size=block)
    for tp in (1, 2, 4, 8):
        if tp != engine.tensor_parallel_size:
            yield f"tensor_parallel_size {tp}", with_flags(tensor_parallel_size=tp, decode_context_parallel_size=1)


PAIRED = 8  # of the likeliest changes, those that are also tried two at a time


def _reason_for(made: Plan, fits: Callable[[Plan], bool]) -> str:
    """The set-ups that would give the printed figures; none is claimed when two would."""
    singles = list(_variants(made))
    found = [what for what, flags in singles if _would(made, flags, fits)]
    if not found:
        likely = singles[:PAIRED]
        found = [f"{one} together with {two}" for (one, first), (two, second) in combinations(likely, 2)
                 if not set(first) & set(second) and _would(made, first | second, fits)]
    if not found:
        return "no other KV cache type, draft, caching, print, window, block size or TP tried gives it"
    if len(found) == 1:
        return f"it would be right with {found[0]}"
    return f"it would be right with {', or with '.join(found[:4])}: the log does not tell which"


def _would(made: Plan, flags: dict, fits: Callable[[Plan], bool]) -> bool:
    try:
        return fits(plan(made.model, made.engine.replace(**flags)))
    except SizingError:
        return False


def _concurrency_fits(launch: Launch, other: Plan, printed: Printed, length: int) -> bool:
    pool, needed = _available(launch, other), other.blocks_per_request(length)
    wide = max(other.stage_bytes_per_block)
    return pool is not None and _inside(pool.low // wide / needed, pool.high // wide / needed, printed)


def _all_fit(launch: Launch, other: Plan, printed: Printed, length: int) -> bool:
    """Does another set-up give a token figure from the printed pool, and the concurrency beside it?"""
    pool, wide = _available(launch, other), max(other.stage_bytes_per_block)
    behind = blocks_behind(other, printed.value, length)
    if behind is None:
        return False
    first, last = behind
    if pool is not None:
        first, last = max(first, pool.low // wide), min(last, pool.high // wide)
    beside = _of(launch.max_concurrency, printed)
    if first > last or beside is None:
        return first <= last
    needed = other.blocks_per_request(length)
    return _inside(first / needed, last / needed, beside)


def _implied(launch: Launch, made: Plan | None) -> dict:
    """What the log proves by itself: each value an interval or a word."""
    implied: dict[str, Any] = {}
    if formula := print_formula(launch):
        implied["print_formula"] = formula
    if runtime := launch.runtime_gib:
        implied["runtime_gib"] = (round(runtime.low, 3), round(runtime.high, 3))
    if launch.total_gib and launch.requested_gib and not launch.utilization:
        total, requested = launch.total_gib[0], launch.requested_gib[0]
        implied["utilization"] = (round(requested.low / total.high, 4), round(requested.high / total.low, 4))
    if launch.available_kv_cache_gib:
        smallest = min(launch.available_kv_cache_gib, key=lambda printed: printed.value)
        implied["smallest_available_gib"] = smallest.value
        if launch.num_gpu_blocks and launch.num_gpu_blocks[-1].value:
            blocks = launch.num_gpu_blocks[-1].value
            implied["bytes_per_block"] = (math.ceil(smallest.low * GiB / (blocks + 1)), math.floor(smallest.high * GiB / blocks))
        if made is not None:
            widest = max(made.stage_bytes_per_block)
            implied["num_gpu_blocks"] = (math.ceil(smallest.low * GiB) // widest, math.floor(smallest.high * GiB) // widest)
    if made is not None and made.model.has_state and launch.kv_cache_tokens and launch.max_concurrency_len:
        fits = {}
        for caching in (True, False):
            other = plan(made.model, made.engine.replace(enable_prefix_caching=caching))
            pool = _available(launch, other)
            behind = blocks_behind(other, launch.kv_cache_tokens[-1].value, launch.max_concurrency_len[-1].value)
            wide = max(other.stage_bytes_per_block)
            fits[caching] = bool(behind and (not pool or behind[0] <= pool[1] // wide and pool[0] // wide <= behind[1]))
        if fits[True] != fits[False]:
            implied["prefix_caching"] = "on" if fits[True] else "off"
    return implied
