"""The way from a config and flags to the printed figure, one line a step, each with its numbers and its source."""

from __future__ import annotations

from typing import Any, NamedTuple

from .layers import FullAttention, LatentAttention
from .memory import Band, TERMS, graph_bytes, requested_bytes
from .spec import Spec, heads_per_gpu, state_shapes, value_bytes
from .units import gib_text

UTILS, INTERFACE = "vllm/v1/core/kv_cache_utils.py", "vllm/v1/kv_cache_interface.py"
PLATFORM, WORKER = "vllm/platforms/interface.py", "vllm/v1/worker/gpu_worker.py"


class Step(NamedTuple):
    """One step: ``formula`` in names, ``numbers`` the same with its figures in, and where ``value`` comes from.

    ``kind`` is ``"measured"``, ``"computed"`` or ``"assumed"``.
    """

    name: str
    formula: str
    numbers: str
    value: Any
    unit: str
    kind: str
    source: str

    def __str__(self) -> str:
        value = f"{self.value:,}" if isinstance(self.value, int) else str(self.value)
        return f"{self.name} = {self.numbers} = {value} {self.unit}".rstrip()


def steps(sizing) -> tuple[Step, ...]:
    """All steps of a sizing, in order."""
    return (*_defaults(sizing), *_layers(sizing), *_blocks(sizing), *_memory(sizing), *_figures(sizing),
            *_check(sizing))


def _defaults(sizing):
    for default in sizing.plan.setup.defaults:
        guessed = "no gpu given" in default.why or "assumed" in default.why
        yield Step(default.flag, "vLLM's default", default.why, default.value, "", "assumed" if guessed else "computed",
                   f"vLLM {sizing.engine.version}")


def _layers(sizing):
    plan = sizing.plan
    tp, dtype = plan.engine.tensor_parallel_size, plan.setup.cache_dtype
    for layer, indices in plan.model.buckets.items():
        per = len(indices)
        if layer.has_state:
            yield from _state(sizing, layer, per)
        elif isinstance(layer, LatentAttention):
            width = layer.kv_lora_rank + layer.qk_rope_head_dim
            yield Step(f"bytes a token, {per} mla layers", "(kv_lora_rank + qk_rope_head_dim) × bytes per value",
                       f"({layer.kv_lora_rank} + {layer.qk_rope_head_dim}) × {value_bytes(dtype)}",
                       width * value_bytes(dtype), "bytes per layer per GPU", "computed", f"config.json; {INTERFACE}")
        elif isinstance(layer, FullAttention):
            heads = heads_per_gpu(layer.num_kv_heads, tp)
            one = value_bytes(dtype)
            yield Step(f"bytes a token, {per} {layer.kind} layers",
                       "max(1, num_key_value_heads // TP) × (key width + value width) × bytes per value",
                       f"max(1, {layer.num_kv_heads} // {tp}) × ({layer.head_dim} + {layer.v_head_dim}) × {one}",
                       heads * (layer.head_dim + layer.v_head_dim) * one, "bytes per layer per GPU", "computed",
                       f"config.json; {INTERFACE}")
    yield Step("bytes_per_token", "sum over the layers that grow",
               " + ".join(f"{len(indices)} × {spec.bytes_per_token:,}" for group in plan.groups
                          for spec, indices in group.specs if spec.grows) or "none grows",
               plan.bytes_per_token, "bytes per token per GPU", "computed", "config.json")


def _state(sizing, layer, per: int):
    plan = sizing.plan
    shapes = state_shapes(layer, plan.engine.tensor_parallel_size, plan.engine.num_speculative_tokens)
    spec = _spec_of(sizing, layer.kind)
    yield Step(f"state of one of {per} {layer.kind} layers", "sum of state shapes × bytes per value",
               " + ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in shapes), spec.unpadded_bytes,
               "bytes per sequence per GPU", "computed", "config.json; vllm/model_executor/layers/mamba/mamba_utils.py")


def _spec_of(sizing, kind: str) -> Spec:
    return next(spec for group in sizing.groups for spec, _ in group.specs if spec.kind == kind)


def _blocks(sizing):
    plan = sizing.plan
    if sizing.block_size is not None:
        hybrid = plan.model.has_state
        yield Step("block_size", "smallest multiple whose page holds a state" if hybrid else
                   "--block-size or the backend's default", f"{plan.setup.backend_name}", plan.block_size_tokens,
                   "tokens", "computed", PLATFORM)
    yield Step("groups", "layers of one spec, split to the width of the smallest",
               " + ".join(f"{group.layers} {group.kind}" for group in plan.groups), len(plan.groups), "groups",
               "computed", UTILS)
    page = max(group.page_size_bytes for group in plan.groups)
    yield Step("page_size_bytes", "block_size × bytes a token of one layer", f"{page:,}", page,
               "bytes per layer per GPU", "computed", INTERFACE)
    yield Step("bytes_per_block", "page of every layer in the widest group",
               " and ".join(f"{each:,}" for each in plan.stage_bytes_per_block), sizing.bytes_per_block,
               "bytes per GPU", "computed", UTILS)


def _memory(sizing):
    engine, memory = sizing.engine, sizing.memory
    if memory is not None and engine.kv_cache_memory_bytes is None:
        picked, share = memory.pick("typical"), sizing.plan.setup.gpu_memory_utilization
        yield Step("total_bytes", "what CUDA reports", gib_text(picked.total_bytes) + " GiB", picked.total_bytes,
                   "bytes per GPU", _kind(memory.total_bytes), _source(memory.total_bytes))
        yield Step("requested_bytes", "ceil(total × gpu_memory_utilization)", f"ceil({picked.total_bytes:,} × {share})",
                   requested_bytes(picked.total_bytes, share), "bytes per GPU", "computed", WORKER)
        for term in TERMS:
            value = graph_bytes(engine, picked) if term == "cuda_graph_bytes" else getattr(picked, term)
            yield Step(term, "subtracted", f"{gib_text(value)} GiB", value, "bytes per GPU",
                       _kind(getattr(memory, term)), _source(getattr(memory, term)))
    yield Step("available_bytes", "requested less what the model needs" if memory is not None else "given",
               f"{gib_text(sizing.available_bytes)} GiB", sizing.available_bytes, "bytes per GPU",
               sizing.available_source, WORKER)


def _kind(value) -> str:
    return "assumed" if isinstance(value, Band) else "measured"


def _source(value) -> str:
    return value.source if isinstance(value, Band) else "given"


def _figures(sizing):
    blocks, needed = sizing.num_gpu_blocks, sizing.blocks_per_request
    kind = sizing.available_source if sizing.available_source == "assumed" else "computed"
    if sizing.engine.num_gpu_blocks_override is not None:
        yield Step("num_gpu_blocks", "--num-gpu-blocks-override", str(blocks), blocks, "blocks", "computed", UTILS)
    else:
        yield Step("num_gpu_blocks", "available_bytes // bytes_per_block, smallest stage",
                   f"{sizing.available_bytes:,} // {_deciding(sizing):,}", blocks, "blocks", kind, UTILS)
    lengths = [sizing.plan.setup.max_model_len, sizing.max_model_len]
    parts = " + ".join(str(group.blocks_per_request) for group in sizing.groups) if lengths[0] == lengths[1] else \
        f"after auto-fit to {sizing.max_model_len:,}"
    yield Step("blocks_per_request", "sum over groups for max_model_len", parts, needed, "blocks", "computed", INTERFACE)
    yield Step("max_concurrency", "num_gpu_blocks / blocks_per_request", f"{blocks:,} / {needed:,}",
               sizing.max_concurrency, "requests", kind, UTILS)
    if sizing.engine.version.has("tokens_from_concurrency"):
        formula, numbers = "int(max_concurrency × max_model_len)", \
            f"int({sizing.max_concurrency:.4f} × {sizing.max_model_len:,})"
    else:
        smallest = min(group.block_size for group in sizing.groups)
        formula, numbers = "num_gpu_blocks // groups × smallest block", f"{blocks:,} // {len(sizing.groups)} × {smallest}"
    yield Step("kv_cache_tokens", formula, numbers, sizing.kv_cache_tokens, "tokens", kind, UTILS)


def _deciding(sizing) -> int:
    return min(sizing.stages, key=lambda stage: stage.num_blocks).bytes_per_block


def _check(sizing):
    held = sizing.plan.held_back_blocks
    yield Step("start-up check", "bytes_per_block × blocks_per_request ≤ available" +
               (" − one block (the null block)" if held else ""),
               f"{gib_text(sizing.needed_bytes)} ≤ {gib_text(sizing.available_bytes - held * _deciding(sizing))} GiB",
               sizing.outcome, "", sizing.available_source if sizing.available_source == "assumed" else "computed", UTILS)
    yield Step("estimated_max_model_len", "longest request the check lets through", f"at most {sizing.plan.setup.max_model_len:,}",
               sizing.estimated_max_model_len, "tokens", "computed", UTILS)
