"""Layers into groups, groups into one pool: what a block is, and how many bytes it costs on each stage.

A block is one page in each layer of a group; every group can take any free block, so a block is as large as the
widest group needs. Source: vLLM's get_kv_cache_groups and get_kv_cache_config_from_groups, 0.28 to 0.33.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

from .engine import Engine
from .errors import UnknownArchitectureError
from .layers import FullAttention, Layer, SlidingWindow, caches
from .model import Model
from .resolve import Setup, resolve
from .spec import DEFAULT_BLOCK_SIZE, Spec, as_full, block_size_tokens, blocks_per_request, caches_prefixes, specs_of
from .units import cdiv

MERGE_BELOW = 1.5  # buckets this close in size are padded to the larger instead of split


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One group of layers that share a block table.

    ``layers`` counts the layer caches in it, ``layer_indices`` says which layers they belong to (draft layers
    come after the model's own). ``page_size_bytes`` is one layer's page, or the sum where they differ in size.
    """

    kind: str
    layers: int
    block_size: int
    page_size_bytes: int
    blocks_per_request: int
    layer_indices: tuple[int, ...]
    specs: tuple[tuple[Spec, tuple[int, ...]], ...]

    @property
    def is_attention(self) -> bool:
        return not self.specs[0][0].state_blocks


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything about a launch that does not depend on how much memory there is."""

    model: Model
    engine: Engine
    setup: Setup
    block_size_tokens: int
    groups: tuple[Group, ...]
    stage_layers: tuple[int, ...]  # layers on each pipeline stage, draft layers included
    stage_bytes_per_block: tuple[int, ...]
    alike: tuple[tuple[tuple[Spec, ...], int], ...]  # the specs of a group, and how many groups are just like it

    def blocks_per_request(self, max_model_len: int, least=min) -> int:
        """Blocks of all groups together for one request of that many tokens; the specs of one group take equally many."""
        flight, dcp = self.setup.tokens_in_flight, self.engine.decode_context_parallel_size
        return sum(count * blocks_per_request(specs[0], max_model_len, flight, dcp, least) for specs, count in self.alike)

    def blocks_that_fit(self, available_bytes: Sequence[int], least=min) -> int:
        """Blocks for which every stage has the memory, given what each has; below zero where one has less than none."""
        return reduce(least, (have // each for have, each in zip(available_bytes, self.stage_bytes_per_block) if each))

    @property
    def bytes_per_token(self) -> int:
        """What one more token costs on the heaviest stage, unpadded, in bytes per GPU."""
        start, heaviest = 0, 0
        for layers in self.stage_layers:
            end = start + layers
            heaviest = max(heaviest, sum(spec.bytes_per_token * _between(indices, start, end)
                                         for group in self.groups for spec, indices in group.specs if spec.grows))
            start = end
        return cdiv(heaviest, self.engine.decode_context_parallel_size)

    @property
    def printed_block(self) -> int:
        """Tokens in the smallest block of all groups, which the token figure counted in before 0.20.1."""
        return min(group.block_size for group in self.groups)

    @property
    def held_back_blocks(self) -> int:
        """Blocks that the start-up check leaves out: the null block, since 0.29."""
        return 1 if self.engine.version.has("null_block_held_back") else 0


@lru_cache(maxsize=8192)
def plan(model: Model, engine: Engine) -> Plan:
    """Work out groups and bytes per block. Raises EngineError or UnknownArchitectureError."""
    setup = resolve(model, engine)
    block = block_size_tokens(model, engine, setup)
    buckets = _buckets(model, engine, setup, block)
    grouped = _grouped(model, buckets)
    flight, dcp = setup.tokens_in_flight, engine.decode_context_parallel_size
    groups = tuple(_group(specs, setup.max_model_len, flight, dcp) for specs in grouped)
    stages = _stage_ends(model, engine)
    per_stage = tuple(max(_bytes_on_stage(group, start, end) for group in groups) for start, end in stages)
    alike: dict[tuple[Spec, ...], int] = {}
    for group in groups:
        specs = tuple(spec for spec, _ in group.specs)
        alike[specs] = alike.get(specs, 0) + 1
    return Plan(model, engine, setup, block, groups, tuple(end - start for start, end in stages), per_stage, tuple(alike.items()))


def _buckets(model: Model, engine: Engine, setup: Setup, block: int) -> dict[Spec, list[int]]:
    """Layer indices by spec, in vLLM's order: the model's layers, then the draft's."""
    buckets: dict[Spec, list[int]] = {}
    unaligned = _without_attention(model, engine)
    for part, indices in model.buckets.items():
        for spec in specs_of(part, model, engine, setup, block):
            apart = unaligned.intersection(indices) if part.has_state else ()
            if apart:
                buckets.setdefault(replace(spec, block_size=engine.block_size or DEFAULT_BLOCK_SIZE), []).extend(apart)
                indices = [index for index in indices if index not in apart]
            buckets.setdefault(spec, []).extend(indices)
    for offset, layer in enumerate(draft_layers(model, engine)):
        for part in caches(layer):
            for spec in specs_of(part, model, engine, setup, block):
                buckets.setdefault(spec, []).append(len(model.layers) + offset)
    eagle_like = engine.num_speculative_tokens and engine.speculative_method in ("mtp", "eagle", "eagle3")
    chunked = any(spec.kind == "chunked" for spec in buckets)
    if (engine.disable_hybrid_kv_cache_manager or chunked and eagle_like) and len(buckets) > 1:
        buckets = _kept_in_full(buckets)
    ordered = {spec: sorted(indices) for spec, indices in buckets.items() if indices}
    return dict(sorted(ordered.items(), key=lambda item: item[1][0])) if unaligned else ordered


def _without_attention(model: Model, engine: Engine) -> set[int]:
    """Layers on a pipeline stage of states alone, whose worker has no attention to align its blocks with.

    Without prefix caching a state's block is the whole request on every stage.
    """
    if engine.pipeline_parallel_size == 1 or not model.has_state or not caches_prefixes(model, engine):
        return set()
    attention = [index for part, indices in model.buckets.items() if not part.has_state for index in indices]
    attention += range(len(model.layers), len(model.layers) + len(draft_layers(model, engine)))
    return {index for start, end in _stage_ends(model, engine) if not any(start <= index < end for index in attention)
            for index in range(start, end)}


def _kept_in_full(buckets: dict[Spec, list[int]]) -> dict[Spec, list[int]]:
    block_size = next((spec.block_size for spec in buckets if spec.kind == "full"), None)
    if block_size is None:
        return buckets
    merged: dict[Spec, list[int]] = {}
    for spec, indices in buckets.items():
        merged.setdefault(as_full(spec, block_size), []).extend(indices)
    return merged


def draft_layers(model: Model, engine: Engine) -> tuple[Layer, ...]:
    """The layers that speculative decoding adds: MTP's own, an EAGLE draft's, none for n-gram."""
    if not engine.num_speculative_tokens or engine.speculative_method == "ngram":
        return ()
    if engine.speculative_method in ("eagle", "eagle3"):
        return tuple(_under_the_targets_window(layer, model) for layer in engine.draft_model.layers)
    return model.draft_layers


def _under_the_targets_window(layer: Layer, model: Model) -> Layer:
    """A draft's plain attention takes the window of a target whose every layer slides."""
    target = model.layers[0]
    if type(layer) is FullAttention and isinstance(target, SlidingWindow) and set(model.layers) == {target}:
        return SlidingWindow(layer.num_kv_heads, layer.head_dim, layer.v_head_dim, target.sliding_window)
    return layer


def _grouped(model: Model, buckets: dict[Spec, list[int]]) -> list[tuple[tuple[Spec, tuple[int, ...]], ...]]:
    """The groups, each as the specs in it with their layers."""
    whole = tuple((spec, tuple(indices)) for spec, indices in buckets.items())
    if len({spec.family for spec in buckets}) == 1 and len({spec.block_size for spec in buckets}) == 1:
        return [whole]
    sizes = [len(indices) for indices in buckets.values()]
    width = max(sizes) if max(sizes) < min(sizes) * MERGE_BELOW else min(sizes)
    groups = []
    for spec, indices in _one_page_size(model, buckets).items():
        count = cdiv(len(indices), width)
        groups.extend(((spec, tuple(indices[first::count])),) for first in range(count))
    return groups


def _one_page_size(model: Model, buckets: dict[Spec, list[int]]) -> dict[Spec, list[int]]:
    """Make every page as large as the largest: more tokens where that divides, padding where it does not."""
    page = max(spec.page_size_bytes for spec in buckets)
    unified = {}
    for spec, indices in buckets.items():
        ratio, rest = divmod(page, spec.page_size_bytes)
        if spec.page_size_bytes == page:
            pass
        elif spec.state_blocks or rest and spec.kind not in ("mla", "indexer"):
            spec = replace(spec, page_size_bytes=page)
        elif not rest:
            spec = replace(spec, page_size_bytes=page, block_size=spec.block_size * ratio)
        else:
            raise UnknownArchitectureError(
                f"{model.name}: its latent-attention page does not divide the largest page of {page:,} bytes, and "
                "vLLM cannot pad it", unknown=("pages that cannot be made equal",))
        unified[spec] = indices
    return unified


def _group(specs, max_model_len: int, flight: int, dcp: int) -> Group:
    blocks = max(blocks_per_request(spec, max_model_len, flight, dcp) for spec, _ in specs)
    return Group(**_at_any_length(specs), blocks_per_request=blocks, specs=specs)


@lru_cache(maxsize=4096)
def _at_any_length(specs) -> dict:
    """What of a group does not depend on the length of a request."""
    first = specs[0][0]
    kinds = list(dict.fromkeys(spec.kind for spec, _ in specs))
    page = first.page_size_bytes if len(specs) == 1 else sum(s.page_size_bytes * len(i) for s, i in specs)
    return dict(kind="+".join(kinds), layers=sum(len(indices) for _, indices in specs),
                block_size=min(spec.block_size for spec, _ in specs), page_size_bytes=page,
                layer_indices=tuple(sorted({index for _, indices in specs for index in indices})))


def _stage_ends(model: Model, engine: Engine) -> list[tuple[int, int]]:
    """First and last-but-one layer index of each pipeline stage; the remainder goes to the middle and later stages,
    counted back from the one before last, and draft layers sit on the last."""
    stages, count = engine.pipeline_parallel_size, len(model.layers)
    base, rest = divmod(count, stages)
    sizes = [base] * stages
    for back in range(2, rest + 2):
        sizes[-back] += 1
    sizes[-1] += len(draft_layers(model, engine))
    ends, start = [], 0
    for size in sizes:
        ends.append((start, start + size))
        start += size
    return ends


def _bytes_on_stage(group: Group, start: int, end: int) -> int:
    """Bytes one block of this group takes on the layers ``start`` to ``end``."""
    return sum(spec.page_size_bytes * _between(indices, start, end) for spec, indices in group.specs)


def _between(indices: tuple[int, ...], start: int, end: int) -> int:
    """How many of the sorted ``indices`` lie in [start, end)."""
    return bisect_left(indices, end) - bisect_left(indices, start)
