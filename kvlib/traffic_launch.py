"""From a model and an engine to what the scheduler goes by: its groups, their blocks, and the release's ways."""

from __future__ import annotations

import math

from .pool import Plan, plan
from .engine import Engine
from .errors import EngineError
from .layers import Mamba2
from .resolve import Setup
from .spec import blocks_per_request, caches_prefixes
from .traffic_groups import ChunkGroup, FullGroup, StateGroup, WindowGroup
from .traffic_scheduler import Settings
from .units import cdiv

KINDS = ("full", "mla", "sliding", "chunked", "state")


def settings_for(model, engine: Engine, num_gpu_blocks: int, groups=None, *, long_prefill_token_threshold: int = 0,
                 scheduler_reserve_full_isl: bool = True, watermark: float = 0.0,
                 prefix_cache_retention_interval: int | None | str = "auto") -> tuple[Settings, int, tuple[str, ...]]:
    """Settings of the scheduler, the blocks one request of ``max_model_len`` takes, and notes on what was taken as known."""
    _check(engine, num_gpu_blocks, long_prefill_token_threshold, watermark)
    version = engine.version
    notes = [note for note in (version.note,) if note]
    if version.number < (0, 28):
        notes.append(f"the scheduler of vLLM {version} was not read; 0.28's rules are followed")
    keep = prefix_cache_retention_interval
    if keep == "auto":
        keep = 0 if version.number >= (0, 30) else None
    ways = dict(keep_every=keep, sticky=version.number[:2] == (0, 32), gaps=version.number < (0, 30))
    if engine.decode_context_parallel_size > 1:
        notes.append("decode context parallelism was not among the runs that the simulation was checked against")
    if groups is not None:
        if version.number < (0, 32) and any(group.get("checkpoint_blocks") for group in groups):
            raise EngineError(f"checkpoint_blocks are given, and vLLM {version} has none in any model (since 0.32)", flag="groups")
        length, budget, seqs, flight = _by_hand_limits(engine)
        caching = engine.enable_prefix_caching
        built = [_by_hand(index, group, length, flight, caching, ways) for index, group in enumerate(groups)]
        needs = [_by_hand_needs(group, length, flight) for group in groups]
        keys = [tuple(sorted((key, value) for key, value in group.items() if key != "layers")) for group in groups]
    else:
        made: Plan = plan(model, engine)
        setup: Setup = made.setup
        length, budget, seqs = setup.max_model_len, setup.max_num_batched_tokens, setup.max_num_seqs
        caching = caches_prefixes(model, engine)
        built = [_group(index, group, made, caching, ways) for index, group in enumerate(made.groups)]
        needs = [group.blocks_per_request for group in made.groups]
        keys = [group.specs[0][0] if len(group.specs) == 1 else index for index, group in enumerate(made.groups)]
    align = math.lcm(*(group.block for group in built))
    _join_alike(built, keys, align if len(built) > 1 else None)
    states = [group for group in built if isinstance(group, StateGroup) and group.keeps]
    if states and len({group.block for group in built}) > 1:
        raise EngineError("this model keeps states beside attention blocks of another size; how vLLM finds prefixes there is not "
                          "known here, so its traffic is not simulated; turn enable_prefix_caching off", flag="enable_prefix_caching")
    for each in ([keep] if keep else []):
        if each % align:
            raise EngineError(f"prefix_cache_retention_interval is {each}; it must be a multiple of {align} tokens, where hits "
                              "fall", flag="prefix_cache_retention_interval", found=each)
    newer = version.number >= (0, 32)
    settings = Settings(
        groups=tuple(built), usable_blocks=num_gpu_blocks - 1, max_model_len=length, max_num_batched_tokens=budget,
        max_num_seqs=seqs, caching=caching, lag=int(engine.async_scheduling and engine.device != "cpu"), align=align,
        long_prefill_token_threshold=long_prefill_token_threshold, threshold_spares_single=newer,
        scheduler_reserve_full_isl=scheduler_reserve_full_isl, watermark_blocks=int(watermark * num_gpu_blocks),
        state_block=states[0].block if states else 0, cut_at_known=not newer)
    return settings, sum(needs), tuple(notes)


def _check(engine: Engine, num_gpu_blocks, threshold, watermark) -> None:
    if not isinstance(num_gpu_blocks, int) or isinstance(num_gpu_blocks, bool) or num_gpu_blocks < 2:
        raise EngineError(f"num_gpu_blocks is {num_gpu_blocks!r:.40}; it must be a whole number of at least 2 (one is the null "
                          "block)", flag="num_gpu_blocks", found=num_gpu_blocks)
    if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 0:
        raise EngineError(f"long_prefill_token_threshold is {threshold!r:.40}; it must be a whole number of tokens, 0 for none",
                          flag="long_prefill_token_threshold", found=threshold)
    if not isinstance(watermark, (int, float)) or not 0 <= watermark < 1:
        raise EngineError(f"watermark is {watermark!r:.40}; it must be a fraction of the pool, from 0 to below 1",
                          flag="watermark", found=watermark)
    if engine.max_model_len == -1:
        raise EngineError("max_model_len is -1 (auto-fit), which depends on the memory; give the length that auto-fit came to",
                          flag="max_model_len", found=-1)
    for flag, plain in (("pipeline_parallel_size", 1), ("num_speculative_tokens", 0)):
        value = getattr(engine, flag)
        if value != plain:
            raise EngineError(f"{flag} is {value}; traffic is simulated without it (checked against vLLM only so), so give "
                              f"{flag}={plain}", flag=flag, found=value, expected=str(plain))


def _group(index: int, group, made: Plan, caching: bool, ways: dict):
    """A group of the plan, as the scheduler sees it."""
    spec, engine, setup = group.specs[0][0], made.engine, made.setup
    if spec.state_blocks:
        extra = spec.state_blocks - 2 if caching else 0
        layer = next(part for part in made.model.buckets if part.has_state)
        return StateGroup(index, spec.block_size, caching, checkpoint=extra and (1 if isinstance(layer, Mamba2) else spec.block_size),
                          **ways)
    if spec.kind in ("sliding", "chunked"):
        cap = blocks_per_request(spec, setup.max_model_len, setup.tokens_in_flight)
        if spec.kind == "sliding":
            return WindowGroup(index, spec.block_size, spec.reach, cap, ways["keep_every"])
        return ChunkGroup(index, spec.block_size, spec.reach, cap)
    return FullGroup(index, group.block_size * engine.decode_context_parallel_size)


def _by_hand(index: int, group: dict, length: int, flight: int, caching: bool, ways: dict):
    kind, block = group.get("kind"), group.get("block_size")
    kind = {"mamba": "state", "local": "chunked"}.get(kind, kind)
    if kind not in KINDS or not isinstance(block, int) or block < 1:
        raise EngineError(f"group {index} is {group!r:.80}; it needs a kind ({', '.join(KINDS)}) and a block_size in tokens",
                          flag="groups", found=group)
    if kind == "state":
        keeps = caching and group.get("mode", "align") == "align"
        return StateGroup(index, block, keeps, checkpoint=group.get("checkpoint_alignment", 1) if group.get("checkpoint_blocks") else 0,
                          **ways)
    if kind == "sliding":
        return WindowGroup(index, block, group["window"], _by_hand_needs(group, length, flight), ways["keep_every"])
    if kind == "chunked":
        return ChunkGroup(index, block, group["chunk"], _by_hand_needs(group, length, flight))
    return FullGroup(index, block)


def _by_hand_needs(group: dict, length: int, flight: int) -> int:
    kind, block = group["kind"], group["block_size"]
    if kind == "sliding":
        return cdiv(min(group["window"] - 1 + flight, length), block) + 1
    if kind in ("chunked", "local"):
        return cdiv(min(group["chunk"] + flight, length), block)
    if kind in ("state", "mamba"):
        return 2 + group.get("checkpoint_blocks", 0) if group.get("mode", "align") == "align" else 1
    return cdiv(length, block)


def _by_hand_limits(engine: Engine) -> tuple[int, int, int, int]:
    if engine.max_model_len in (None, -1):
        raise EngineError("groups are given by hand, so max_model_len must be given too", flag="max_model_len")
    budget = engine.max_num_batched_tokens or 8192
    seqs = engine.max_num_seqs or min(1024, budget)
    return engine.max_model_len, budget, seqs, budget * (2 if engine.async_scheduling else 1)


def _join_alike(groups: list, keys: list, align: int | None) -> None:
    """Groups of one layout are looked up together; with several groups, hits fall on the common multiple of their blocks."""
    together: dict = {}
    for group, key in zip(groups, keys):
        together.setdefault(key, []).append(group)
        group.align = align or group.block
        group.alike = together[key]


