"""What each kind of layer keeps on one GPU: the bytes of a page, and the blocks a request takes.

A *page* is one layer's share of one block. Source: vLLM's kv_cache_interface.py and mamba_utils.py, 0.28 to 0.33.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .engine import DTYPE_BYTES, PER_TOKEN_HEAD_DTYPES, Engine
from .errors import EngineError
from .layers import (ChunkedLocal, GatedDeltaNet, KimiDelta, LatentAttention, Layer, Lightning, Mamba1,
                     Mamba2, ShortConv, SlidingWindow)
from .model import Model
from .resolve import GDN_CHECKPOINT_TOKENS, Setup
from .units import cdiv

SCALE_BYTES_PER_HEAD = 8  # two float32 scales a head and token, for the per-token-head cache types
FP8_DS_MLA_BYTES_PER_TOKEN = 656
INDEXER_SCALE_BYTES, INDEXER_SCALE_WIDTH = 4, 128
MLA_HYBRID_BLOCK = 128
DEFAULT_BLOCK_SIZE = 16  # where no attention backend has a say
GROWING = ("full", "mla", "indexer")


@dataclass(frozen=True, slots=True)
class Spec:
    """The cache of one layer on one GPU.

    ``block_size`` in tokens; ``page_size_bytes`` with padding and ``unpadded_bytes`` without; ``reach`` is the
    tokens a window or chunk can see; ``state_blocks`` the blocks a request takes of a state, 0 for attention.
    """

    kind: str
    block_size: int
    page_size_bytes: int
    unpadded_bytes: int
    bytes_per_token: int = 0
    reach: int = 0
    state_blocks: int = 0
    geometry: tuple[int, ...] = ()  # heads and widths: layers that differ here never share a spec

    @property
    def grows(self) -> bool:
        """Does one more token cost more bytes, without end?"""
        return self.kind in GROWING

    @property
    def family(self) -> str:
        """Kinds that may share one group although their pages differ in size."""
        return "full" if self.grows else \
            f"{self.kind} {self.reach}" if self.reach else f"state {self.state_blocks}"


def blocks_per_request(spec: Spec, max_model_len: int, tokens_in_flight: int, dcp: int = 1, least=min) -> int:
    """Blocks that one request of ``max_model_len`` tokens takes in one group of this spec.

    ``least`` is ``numpy.minimum`` where ``max_model_len`` is an array.
    """
    if spec.state_blocks:
        return spec.state_blocks
    if spec.kind == "sliding":
        return cdiv(least(spec.reach - 1 + tokens_in_flight, max_model_len), spec.block_size) + 1
    if spec.kind == "chunked":
        return cdiv(least(spec.reach + tokens_in_flight, max_model_len), spec.block_size)
    return cdiv(cdiv(max_model_len, dcp), spec.block_size)


def value_bytes(dtype: str) -> int:
    """Bytes of one stored key or value number, scales not counted."""
    return DTYPE_BYTES.get(dtype, 1)


def heads_per_gpu(num_kv_heads: int, tensor_parallel_size: int) -> int:
    """KV heads on one GPU; past the number of heads they are copied, not split.

    >>> [heads_per_gpu(8, tp) for tp in (1, 4, 8, 16)]
    [8, 2, 1, 1]
    """
    return max(1, num_kv_heads // tensor_parallel_size)


def attention_bytes_per_token(layer: Layer, cache_dtype: str, tensor_parallel_size: int) -> int:
    """Bytes one token takes in one attention layer on one GPU, without padding and without an indexer."""
    if isinstance(layer, LatentAttention):
        if cache_dtype == "fp8_ds_mla":
            return FP8_DS_MLA_BYTES_PER_TOKEN
        return (layer.kv_lora_rank + layer.qk_rope_head_dim) * value_bytes(cache_dtype)
    heads = heads_per_gpu(layer.num_kv_heads, tensor_parallel_size)
    if cache_dtype == "int4_per_token_head":
        return heads * (layer.head_dim // 2 + layer.v_head_dim // 2 + SCALE_BYTES_PER_HEAD)
    scales = SCALE_BYTES_PER_HEAD if cache_dtype in PER_TOKEN_HEAD_DTYPES else 0
    return heads * ((layer.head_dim + layer.v_head_dim) * value_bytes(cache_dtype) + scales)


def indexer_bytes_per_token(index_head_dim: int) -> int:
    """Bytes one token takes in a sparse indexer: an 8-bit key and its scales.

    >>> indexer_bytes_per_token(128)
    132
    """
    return index_head_dim + index_head_dim // INDEXER_SCALE_WIDTH * INDEXER_SCALE_BYTES


def state_shapes(layer: Layer, tp: int = 1, num_speculative_tokens: int = 0,
                 draft_rows: bool = True) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The state tensors of one layer on one GPU: ``("conv" | "ssm", shape)``, the shapes in numbers stored.

    Source: vLLM's mamba_utils.py. Draft tokens add rows to the convolution state (``draft_rows``: to that of a short
    convolution too, as since 0.30).
    """
    drafts = num_speculative_tokens
    if isinstance(layer, GatedDeltaNet):
        width = (2 * layer.linear_num_key_heads * layer.linear_key_head_dim
                 + layer.linear_num_value_heads * layer.linear_value_head_dim)
        return (("conv", (layer.linear_conv_kernel_dim - 1 + drafts, width // tp)),
                ("ssm", (layer.linear_num_value_heads // tp, layer.linear_value_head_dim, layer.linear_key_head_dim)))
    if isinstance(layer, Mamba2):
        groups = layer.n_groups if layer.n_groups % tp == 0 else tp
        width = layer.intermediate_size + 2 * groups * layer.state_size
        return (("conv", (layer.conv_kernel - 1 + drafts, width // tp)),
                ("ssm", (layer.num_heads // tp, layer.head_dim, layer.state_size)))
    if isinstance(layer, Mamba1):
        return (("conv", (layer.conv_kernel - 1, layer.intermediate_size // tp)),
                ("ssm", (layer.intermediate_size // tp, layer.state_size)))
    if isinstance(layer, KimiDelta):
        width = 3 * layer.num_heads * layer.head_dim
        return (("conv", (layer.short_conv_kernel_size - 1 + drafts, width // tp)),
                ("ssm", (layer.num_heads // tp, layer.head_dim, layer.head_dim)))
    if isinstance(layer, ShortConv):
        rows = layer.conv_L_cache - 1 + (drafts if draft_rows else 0)
        return (("conv", (rows, layer.conv_dim // tp)),)
    if isinstance(layer, Lightning):
        return (("ssm", (layer.num_heads // tp, layer.head_dim, layer.head_dim)),)
    raise TypeError(f"{layer.kind} keeps no state")


def state_bytes(layer: Layer, model: Model, engine: Engine, setup: Setup) -> int:
    """Bytes of one layer's state for one sequence on one GPU. The cache type never touches it."""
    conv = DTYPE_BYTES[setup.model_dtype]
    asked = engine.mamba_ssm_cache_dtype
    on_cpu = engine.device == "cpu" and isinstance(layer, GatedDeltaNet)
    fallback = "float32" if on_cpu or isinstance(layer, KimiDelta) else setup.model_dtype
    ssm = DTYPE_BYTES[asked if asked != "auto" else model.mamba_ssm_dtype or fallback]
    if isinstance(layer, Lightning):
        ssm = conv
    elif isinstance(layer, KimiDelta) and not engine.version.has("kda_state_dtype"):
        ssm = DTYPE_BYTES["float32"]
    shapes = state_shapes(layer, engine.tensor_parallel_size, engine.num_speculative_tokens,
                          engine.version.has("short_conv_drafts"))
    return sum(math.prod(shape) * (conv if name == "conv" else ssm) for name, shape in shapes)


def caches_prefixes(model: Model, engine: Engine) -> bool:
    """Is prefix caching on? A model of states alone never caches prefixes."""
    return engine.enable_prefix_caching and model.attention is not None


def state_blocks(layer: Layer, model: Model, engine: Engine, setup: Setup) -> int:
    """Blocks one request takes of one group of states, by version, prefix caching and draft tokens."""
    drafts, version = engine.num_speculative_tokens, engine.version
    if not caches_prefixes(model, engine):
        return 1 + drafts
    keeps_checkpoint = (isinstance(layer, Mamba2) and version.has("mamba2_keeps_three")
                        or _gdn_checkpoints(layer, engine, setup))
    return 2 + drafts + keeps_checkpoint


def _gdn_checkpoints(layer: Layer, engine: Engine, setup: Setup) -> bool:
    return (isinstance(layer, GatedDeltaNet) and engine.version.has("gdn_checkpoints")
            and engine.enable_prefix_caching and setup.gdn_prefill_backend == "flashinfer")


def block_size_tokens(model: Model, engine: Engine, setup: Setup) -> int:
    """Tokens in a block of attention: the backend's default or ``--block-size``, and in a hybrid the smallest
    multiple of it whose page holds a state."""
    if setup.backend is None:
        return engine.block_size or DEFAULT_BLOCK_SIZE
    configured = engine.block_size or setup.backend.default_block
    if not model.has_state:
        return configured
    granularity = max(setup.backend.kernel_block, configured)
    if isinstance(model.attention, LatentAttention):
        granularity = max(granularity, MLA_HYBRID_BLOCK)
    states = [part for part in model.buckets if part.has_state]
    if any(_gdn_checkpoints(part, engine, setup) for part in states):
        granularity = math.lcm(granularity, GDN_CHECKPOINT_TOKENS)
    per_token = attention_bytes_per_token(model.attention, setup.cache_dtype, engine.tensor_parallel_size)
    largest = max(state_bytes(part, model, engine, setup) for part in states)
    aligned = max(configured, granularity * cdiv(largest, granularity * per_token))
    if aligned % setup.backend.kernel_block:
        raise EngineError(f"block_size {engine.block_size} aligns to blocks of {aligned:,} tokens, and {setup.backend_name} "
                          f"takes multiples of {setup.backend.kernel_block}", flag="block_size", found=engine.block_size)
    return aligned


def specs_of(layer: Layer, model: Model, engine: Engine, setup: Setup, block_size: int) -> tuple[Spec, ...]:
    """The caches of one layer record on one GPU (two for latent attention with an indexer)."""
    tp = engine.tensor_parallel_size
    if layer.has_state:
        size = state_bytes(layer, model, engine, setup)
        page = size
        if model.attention is not None:
            page = max(size, block_size * attention_bytes_per_token(model.attention, setup.cache_dtype, tp))
        length = block_size if caches_prefixes(model, engine) else setup.max_model_len
        return (Spec(layer.kind, length, page, size, state_blocks=state_blocks(layer, model, engine, setup)),)
    per_token = attention_bytes_per_token(layer, setup.cache_dtype, tp)
    reach = 0
    if isinstance(layer, SlidingWindow):
        reach = (layer.sliding_window + (layer.inclusive and engine.version.has("inclusive_window"))
                 + _drafts_in_window(model, engine))
    elif isinstance(layer, ChunkedLocal):
        reach = layer.attention_chunk_size
    if isinstance(layer, SlidingWindow) and not engine.version.has("window_block_size") and setup.backend is not None:
        block_size = setup.backend.kernel_block
    page = block_size * per_token
    geometry = () if isinstance(layer, LatentAttention) else \
        (heads_per_gpu(layer.num_kv_heads, tp), layer.head_dim, layer.v_head_dim)
    spec = Spec(layer.kind, block_size, page, page, per_token, reach, geometry=geometry)
    if getattr(layer, "index_head_dim", 0):
        per_token = indexer_bytes_per_token(layer.index_head_dim)
        page = block_size * per_token
        return spec, Spec("indexer", block_size, page, page, per_token)
    return (spec,)


def _drafts_in_window(model: Model, engine: Engine) -> int:
    """Tokens that an MTP of several layers adds to every window."""
    if engine.speculative_method != "mtp" or not engine.version.has("drafts_widen_windows"):
        return 0
    drafts = engine.num_speculative_tokens
    return drafts - 1 if min(len(model.draft_layers), drafts) > 1 else 0


def as_full(spec: Spec, block_size: int) -> Spec:
    """A window or chunk layer kept in full (disable_hybrid_kv_cache_manager), in blocks of the full layers."""
    if spec.kind not in ("sliding", "chunked"):
        return spec
    page = block_size * spec.bytes_per_token
    return replace(spec, kind="full", reach=0, block_size=block_size, page_size_bytes=page, unpadded_bytes=page)
