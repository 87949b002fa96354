"""What would start a launch that its log shows refused: each choice computed from the log's own memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from . import catalog
from .capacity import Sizing, size
from .engine import Engine
from .errors import SizingError
from .explanation import Explanation
from .memory import MemoryBudget, graph_bytes, requested_bytes
from .model import Model
from .remedies import Remedy, remedies
from .units import GiB, gib_text
from .vllm_log import Launch, Printed


class Choices(NamedTuple):
    """The refused set-up sized again, what would make it pass, and what had to be taken for granted."""

    sizing: Sizing | None
    remedies: tuple[Remedy, ...]
    notes: tuple[str, ...]


def choices(x: Explanation) -> Choices:
    """The choices for a refused launch, least harm first; none where the model or the memory is not known.

    >>> from kvlib import explain, read_log
    >>> refused = explain(read_log(catalog.log_text("llama-tp-sweep-refused")), model="Llama-3.1-8B")
    >>> [choice.name for choice in choices(refused).remedies][:2]
    ['lower max_model_len to 51,680', 'FP8 KV cache, and max_model_len to 103,392']
    """
    launch, model, engine = x.launch, x.model, x.engine
    if launch.refusal is None or model is None or engine is None:
        return Choices(None, (), ())
    notes: list[str] = []
    try:
        memory = budget_of(launch, model, engine, notes)
        if memory is not None:
            engine = engine.replace(gpu_memory_utilization=_share(launch, engine))
            sizing = size(model, engine, memory=memory)
        else:
            pool = _pool(launch, model, engine)
            if pool is None and engine.kv_cache_memory_bytes is None:
                return Choices(None, (), ("the log does not print the memory of this launch",))
            sizing = size(model, engine, available_bytes=None if engine.kv_cache_memory_bytes else pool)
        found = remedies(sizing)
        found = tuple(each if each.sizing.fits else _shorter(each) for each in found)
        found = tuple(each for each in found if each is not None)
        return Choices(sizing, (*found, *_other_hardware(sizing, memory)), tuple(notes))
    except SizingError as problem:
        return Choices(None, (), (str(problem),))


def _shorter(remedy: Remedy) -> Remedy | None:
    """The same change with the longest length that passes after it; None where none does."""
    after = remedy.sizing
    length = after.estimated_max_model_len
    if after.outcome != "max_model_len" or not length:
        return None
    memory, pool = after.memory, [stage.available_bytes for stage in after.stages]
    fixed = after.engine.kv_cache_memory_bytes or after.engine.num_gpu_blocks_override
    sized = size(after.model, after.engine.replace(max_model_len=length), memory=memory) if memory else size(
        after.model, after.engine.replace(max_model_len=length), available_bytes=None if fixed else pool)
    if not sized.fits:
        return None
    return Remedy(f"{remedy.name}, and max_model_len to {length:,}", remedy.flags | {"max_model_len": length},
                  f"passes, with {sized.max_concurrency:.2f} requests of {length:,} tokens",
                  f"{remedy.gives_up}; longer requests", sized)


def budget_of(launch: Launch, model: Model, engine: Engine, notes: list[str] | None = None) -> MemoryBudget | None:
    """One GPU's memory as the log prints it, closed so that the printed pool comes out; None where it prints no total."""
    notes = notes if notes is not None else []
    if engine.kv_cache_memory_bytes is not None:
        return None
    share = _share(launch, engine)
    total = _bytes(launch.total_gib) or (_bytes(launch.requested_gib) and math.floor(_bytes(launch.requested_gib) / share))
    if not total:
        return None
    weights = _bytes(launch.weights_gib, max)
    free = _bytes(launch.free_gib, min)
    pool = _pool(launch, model, engine)
    if weights is None:
        weights = _weights_on_file(model, engine, notes)
    graphs = _bytes(launch.cuda_graph_estimate_gib, max) or 0
    if pool is None:
        notes.append("activations and other runtime memory are assumed, 3 GiB: the launch ended before it measured them")
        return MemoryBudget(total, weights, 3 * GiB, 0, graphs, free)
    bare = MemoryBudget(total, weights, 0, 0, graphs, free)
    rest = requested_bytes(total, share) - weights - graph_bytes(engine, bare) - pool
    return replace(bare, peak_activation_bytes=rest)


def _share(launch: Launch, engine: Engine) -> float:
    if engine.gpu_memory_utilization is not None:
        return engine.gpu_memory_utilization
    return launch.utilization[-1].value if launch.utilization else 0.92


def _bytes(figures: list[Printed], which=min) -> int | None:
    return which((round(printed.value * GiB) for printed in figures), default=None)


def _pool(launch: Launch, model: Model, engine: Engine) -> int | None:
    """The least pool that the log prints; from 0.29 the refusal's own figure has lost the null block."""
    if launch.available_kv_cache_gib:
        return _bytes(launch.available_kv_cache_gib)
    refusal = launch.refusal
    if refusal is None or refusal.kind != "max_model_len" or refusal.available_gib is None:
        return None
    held = size(model, engine.replace(kv_cache_memory_bytes=None), available_bytes=GiB).plan
    return round(refusal.available_gib.value * GiB) + held.held_back_blocks * max(held.stage_bytes_per_block)


def _weights_on_file(model: Model, engine: Engine, notes: list[str]) -> int:
    try:
        found = catalog.weights(model.name, None, engine.tensor_parallel_size)
    except SizingError:
        notes.append("the log prints no weights: they stand with the rest of the runtime memory")
        return 0
    notes.append(f"the log prints no weights: {gib_text(found.bytes)} GiB, {found.kind} elsewhere, are taken")
    return found.bytes


def _other_hardware(sizing: Sizing, memory: MemoryBudget | None) -> tuple[Remedy, ...]:
    """Lighter weights, more GPUs, a larger card: what is left when no flag is to be given up."""
    if sizing.fits or memory is None:
        return ()
    tried: list[tuple[str, dict, str, MemoryBudget]] = []
    if memory.weights_bytes and sizing.model.dtype in ("bfloat16", "float16"):
        tried.append(("8-bit weights, about half of their memory", {}, "exactness of the weights: check your quality",
                      replace(memory, weights_bytes=memory.weights_bytes // 2)))
    tp = sizing.engine.tensor_parallel_size
    tried += [(f"tensor_parallel_size {more}", {"tensor_parallel_size": more},
               "more GPUs; their exchange takes memory of its own",
               replace(memory, weights_bytes=memory.weights_bytes * tp // more)) for more in (2 * tp, 4 * tp, 8 * tp)]
    cards = sorted((card for card in catalog.gpus().values() if card.total_bytes > memory.total_bytes),
                   key=lambda card: card.total_bytes)
    tried += [(f"another card: {card.name}", {}, "the card you have",
               replace(memory, total_bytes=card.total_bytes, free_bytes=None)) for card in cards]
    found, kinds = [], set()
    for name, flags, gives_up, after in tried:
        kind = name.split()[0]
        if kind in kinds:
            continue
        try:
            sized = size(sizing.model, sizing.engine.replace(**flags), memory=after)
        except SizingError:
            continue
        if sized.fits:
            kinds.add(kind)
            found.append(Remedy(name, flags, f"passes, with {sized.max_concurrency:.2f} requests of {sized.max_model_len:,} "
                                "tokens", gives_up, sized))
    return tuple(found)
