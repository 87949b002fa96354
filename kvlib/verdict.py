"""The verdict over a range: where vLLM's memory checks stand at the least and at the most memory, and the break-even."""

from __future__ import annotations

import math
from typing import NamedTuple

from .capacity import Sizing, state_blocks_wanted
from .engine import Engine
from .memory import TERMS, MemoryBudget, at, graph_bytes, requested_bytes
from .ranges import gib_span
from .units import GiB, gib_text

NAMES = {"weights_bytes": "weights", "peak_activation_bytes": "activations", "non_torch_bytes": "non-torch memory",
         "cuda_graph_bytes": "CUDA graphs", "reserve": "all but weights and cache", "total_bytes": "GPU memory",
         "available": "for the cache", "free_bytes": "free at start"}
NOT_CHECKED = "Not checked: kernels, the capture of CUDA graphs, a vision encoder, and what other processes take later."


class Verdict(NamedTuple):
    """``word`` is "passes", "close" or "refused"; ``phrase`` its words; ``reason`` why; ``break_even_bytes`` what the
    assumed terms may take together before vLLM refuses (None where nothing is assumed)."""

    word: str
    phrase: str
    reason: str
    break_even_bytes: int | None = None


def judge(low: Sizing, typical: Sizing, high: Sizing, assumed: tuple[str, ...] = ()) -> Verdict:
    """What vLLM's memory checks say over a range; ``assumed`` names the budget's terms that are bands."""
    if low.fits:
        return Verdict("passes", "passes vLLM's memory checks", "")
    if not high.fits:
        return Verdict("refused", "refused", why_refused(low, high))
    fixed = high.memory is None or high.engine.num_gpu_blocks_override is not None or high.engine.kv_cache_memory_bytes is not None
    if low.outcome == "weights_do_not_fit" and fixed:     # beside a cache of a fixed size, weights that are a band
        total = low.memory.total_bytes if low.memory.free_bytes is None else low.memory.free_bytes
        return Verdict("close", "too close to call", f"it passes if the weights take at most {math.floor(total / GiB * 100) / 100} GiB; "
                       f"they may take {gib_text(low.memory.weights_bytes)}", total)
    parts = [name for name in TERMS if name in assumed]
    if typical.memory is None or not parts:
        return Verdict("close", "too close to call", "within the rounding of the printed memory it passes or fails")
    band = [sum(at(getattr(each.memory, name), "typical") for name in parts) for each in (high, low)]
    limit = sum(at(getattr(typical.memory, name), "typical") for name in parts) + spare_bytes(typical)
    most = math.floor(limit / GiB * 100) / 100     # rounded down: at the figure that stands there it passes
    together = f"{and_([NAMES[name] for name in parts])} take at most {most} GiB" + (" together" if len(parts) > 1 else "")
    return Verdict("close", "too close to call",
                   f"it passes if {together} (assumed: {gib_span(*band)} GiB)", limit)


def spare_bytes(sizing: Sizing) -> int:
    """What the assumed terms could still grow by (negative: must shrink by) at the edge of passing."""
    made = sizing.plan
    blocks = made.blocks_per_request(1) if sizing.engine.max_model_len == -1 else sizing.blocks_per_request     # auto-fit asks for one token
    spare = min(stage.available_bytes - stage.bytes_per_block * (blocks + made.held_back_blocks) for stage in sizing.stages)
    if wanted := state_blocks_wanted(made):
        spare = min(spare, *(stage.available_bytes - wanted * stage.bytes_per_block for stage in sizing.stages))
    return spare


def taken_bytes(memory: MemoryBudget, engine: Engine, side: str = "typical") -> int:
    """All that is taken off the requested memory: weights and reserve, the graphs only where they are subtracted."""
    picked = memory.pick({"low": "most", "typical": "typical", "high": "least"}[side])
    return picked.weights_bytes + picked.peak_activation_bytes + picked.non_torch_bytes + graph_bytes(engine, picked)


def why_refused(low: Sizing, high: Sizing) -> str:
    """Where a launch fails first, in a sentence, at the most memory that is thought possible."""
    best = "" if low.available_bytes == high.available_bytes else " at best"
    memory, refusal = high.memory, high.refusal
    if high.outcome == "weights_do_not_fit":
        least, most = (at(each.memory.weights_bytes, "typical") for each in (high, low))
        return f"the weights, {gib_span(least, most, 2)} GiB on each GPU, are larger than the GPU"
    if high.outcome == "free_memory":
        return f"{refusal.needed_gib} GiB are requested, {refusal.available_gib} GiB are free at start"
    if high.outcome == "no_cache_memory":
        if memory is None:
            return "nothing is left for the cache"
        taken = taken_bytes(memory, high.engine)
        asked = requested_bytes(at(memory.total_bytes, "typical"), high.plan.setup.gpu_memory_utilization)
        return (f"nothing is left for the cache: weights and reserve take {gib_text(taken)} GiB{best}, "
                f"{gib_text(asked)} GiB are requested")
    if high.outcome == "max_num_seqs":
        return (f"max_num_seqs, {high.plan.setup.max_num_seqs:,}, is more than the {high.num_gpu_blocks:,} blocks "
                f"for states{best}")
    estimate = low.estimated_max_model_len
    if high.engine.max_model_len == -1:
        return f"not even one token fits into the {gib_text(high.available_bytes)} GiB left{best}"
    return (f"a request of {high.max_model_len:,} tokens needs {gib_text(high.needed_bytes)} GiB of cache, "
            f"{gib_text(high.available_bytes)} GiB are left{best}"
            + (f"; {estimate:,} tokens would pass" if estimate else ""))


def and_(names: list[str]) -> str:
    """Names in a sentence."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
