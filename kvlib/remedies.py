"""What would make a launch pass, or hold more: each change computed, least harm first, with what it gives up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .capacity import Sizing, size
from .engine import FP8_DTYPES, Engine
from .errors import SizingError
from .memory import MemoryBudget, at
from .model import Model
from .units import gib_text

Budget = Callable[[Model, Engine], MemoryBudget]
MAX_UTILIZATION = 0.95  # the rest is for memory that vLLM does not measure


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change: the flags to set (empty where it is not a flag), what it gains and gives up, and the result."""

    name: str
    flags: dict
    gain: str
    gives_up: str
    sizing: Sizing

    @property
    def engine(self) -> Engine:
        return self.sizing.engine


def remedies(sizing: Sizing, budget: Budget | None = None) -> tuple[Remedy, ...]:
    """Changes that turn a refusal into a pass, or else hold more requests; least harm first.

    ``budget`` gives the memory of a set-up after a change (activations move with batched tokens, weights with TP);
    without it, the sizing's own memory is kept where the change leaves it as it is.

    >>> from kvlib import Engine, load_model
    >>> refused = size(load_model("Llama-3.1-8B"), Engine(max_model_len=131072), available_bytes=6 << 30)
    >>> [(r.name, r.sizing.outcome) for r in remedies(refused)][:2]
    [('lower max_model_len to 49,136', 'passes'), ('FP8 KV cache', 'max_model_len')]
    """
    found: list[Remedy] = []
    for name, flags, gives_up, memory in changes(sizing, budget):
        try:
            after = _resized(sizing, flags, memory, budget)
        except SizingError:
            continue
        gain = _gain(sizing, after)
        if gain:
            found.append(Remedy(name, flags, gain, gives_up, after))
    return tuple(found)


def _resized(sizing: Sizing, flags: dict, memory: MemoryBudget | None, budget: Budget | None) -> Sizing:
    engine = sizing.engine.replace(**flags)
    if memory is None and sizing.memory is not None:
        memory = budget(sizing.model, engine) if budget is not None else sizing.memory
        if budget is not None:
            memory = replace(memory, total_bytes=sizing.memory.total_bytes, free_bytes=sizing.memory.free_bytes)
    if memory is not None:
        return size(sizing.model, engine, memory=memory)
    fixed = engine.kv_cache_memory_bytes or engine.num_gpu_blocks_override
    return size(sizing.model, engine, available_bytes=None if fixed else [stage.available_bytes for stage in sizing.stages])


def _gain(before: Sizing, after: Sizing) -> str | None:
    """What a change brings, in words; None where it brings nothing."""
    if not before.fits and after.fits:
        return f"passes, with {after.max_concurrency:.2f} requests of {after.max_model_len:,} tokens"
    if before.outcome != after.outcome and not after.fits:
        return f"gets further: {after.outcome}" if _rank(after) > _rank(before) else None
    gained = after.max_concurrency - before.max_concurrency
    if gained <= 0.005:
        return None
    return f"{gained:+.2f} requests of {after.max_model_len:,} tokens"


def _rank(sizing: Sizing) -> int:
    from .capacity import OUTCOMES

    order = ("free_memory", "weights_do_not_fit", "no_cache_memory", "max_model_len", "max_num_seqs", "passes")
    assert set(order) == set(OUTCOMES)
    return order.index(sizing.outcome)


def changes(sizing: Sizing, budget: Budget | None) -> Iterator[tuple[str, dict, str, MemoryBudget | None]]:
    """All changes worth trying, least harm first: name, flags, what it gives up, memory where it moves."""
    engine, memory, setup = sizing.engine, sizing.memory, sizing.plan.setup
    share = setup.gpu_memory_utilization
    if memory is not None and sizing.outcome == "free_memory":
        total, free = at(memory.total_bytes, "typical"), at(memory.free_bytes, "typical")
        missing = math.ceil(total * share) - free
        lower = math.floor(free / total * 100) / 100
        if lower > 0:
            yield (f"lower gpu_memory_utilization to {lower:.2f}", {"gpu_memory_utilization": lower},
                   f"{gib_text(round((share - lower) * total))} GiB of cache", memory)
        yield (f"free {gib_text(missing)} GiB held by other processes", {}, "what else runs on the GPU",
               replace(memory, free_bytes=free + missing))
    if sizing.outcome == "max_num_seqs":
        yield (f"lower max_num_seqs to {sizing.num_gpu_blocks:,}", {"max_num_seqs": sizing.num_gpu_blocks},
               "requests decoded at once beyond that", None)
    if memory is not None and share < MAX_UTILIZATION and sizing.outcome != "free_memory":
        more = _share_that_passes(sizing, memory, share)
        yield (f"raise gpu_memory_utilization to {more:.2f}", {"gpu_memory_utilization": more},
               "room for memory that vLLM does not measure", None)
    if sizing.outcome == "max_model_len" and sizing.estimated_max_model_len:
        length = sizing.estimated_max_model_len
        yield f"lower max_model_len to {length:,}", {"max_model_len": length}, "longer requests", None
    if budget is not None and memory is not None and setup.max_num_seqs > 256:
        yield "lower max_num_seqs to 256", {"max_num_seqs": 256}, "more than 256 requests decoded at once", None
    if budget is not None and setup.max_num_batched_tokens > 2048:
        yield ("lower max_num_batched_tokens to 2,048", {"max_num_batched_tokens": 2048},
               "speed of long prompts", None)
    elif any(kind in sizing.model.kinds for kind in ("sliding", "chunked")) and setup.max_num_batched_tokens > 2048:
        yield ("lower max_num_batched_tokens to 2,048", {"max_num_batched_tokens": 2048},
               "speed of long prompts", None)
    if setup.cache_dtype not in (*FP8_DTYPES, "fp8_ds_mla"):
        yield ("FP8 KV cache", {"kv_cache_dtype": "fp8"}, "exactness of keys and values: check your quality", None)
    if memory is not None and not engine.enforce_eager and at(memory.cuda_graph_bytes, "high") > 0:
        yield "no CUDA graphs (enforce_eager)", {"enforce_eager": True}, "speed of small batches", None
    yield from _more_gpus(sizing, budget)


def _share_that_passes(sizing: Sizing, memory: MemoryBudget, share: float) -> float:
    """The smallest share, in hundredths, with room for one longest request; the largest sensible one where there is none."""
    if sizing.fits or sizing.outcome not in ("max_model_len", "no_cache_memory"):
        return MAX_UTILIZATION
    total = at(memory.total_bytes, "typical")
    enough = math.ceil((share * total - sizing.headroom_bytes) / total * 100 - 1e-9) / 100
    return enough if enough <= MAX_UTILIZATION else MAX_UTILIZATION


def _more_gpus(sizing: Sizing, budget: Budget | None) -> Iterator[tuple[str, dict, str, MemoryBudget | None]]:
    """The next tensor-parallel sizes, where weights and cache per GPU are known after the change."""
    if budget is None:
        return
    tp = sizing.engine.tensor_parallel_size
    for more in (2 * tp, 4 * tp, 8 * tp):
        if more <= 16:
            yield f"tensor_parallel_size {more}", {"tensor_parallel_size": more}, f"the price of {more - tp} more GPU{'s' * (more - tp > 1)}", None
