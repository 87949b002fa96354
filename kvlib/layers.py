"""The kinds of layer a model is made of, as far as the cache can tell them apart.

Every record is frozen and holds the fields of ``config.json`` that decide its cache, under their own names.
Sizes here are for the whole model; what one GPU keeps of them is worked out in :mod:`kvlib.spec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, repr=False)
class Layer:
    """Base of all kinds. ``kind`` is the word used in groups, tables and messages."""

    kind: ClassVar[str] = "none"
    grows: ClassVar[bool] = False  # one more token costs more bytes, without end
    has_state: ClassVar[bool] = False  # keeps a state of fixed size for each sequence

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


@dataclass(frozen=True, repr=False)
class NoCache(Layer):
    """A layer that keeps nothing between tokens (an MLP or expert layer of its own, a skipped attention)."""


@dataclass(frozen=True, repr=False)
class FullAttention(Layer):
    """Keys and values of every past token. ``head_dim`` is the key's width, ``v_head_dim`` the value's."""

    kind: ClassVar[str] = "full"
    grows: ClassVar[bool] = True
    num_kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0


@dataclass(frozen=True, repr=False)
class SlidingWindow(FullAttention):
    """Keys and values of the last ``sliding_window`` tokens."""

    kind: ClassVar[str] = "sliding"
    grows: ClassVar[bool] = False
    sliding_window: int = 0
    inclusive: bool = False  # the token itself counts beside the window (Cohere 2, since vLLM 0.30)


@dataclass(frozen=True, repr=False)
class ChunkedLocal(FullAttention):
    """Keys and values of the current chunk of ``attention_chunk_size`` tokens (Llama 4)."""

    kind: ClassVar[str] = "chunked"
    grows: ClassVar[bool] = False
    attention_chunk_size: int = 0


@dataclass(frozen=True, repr=False)
class LatentAttention(Layer):
    """Multi-head latent attention (MLA): one compressed row a token, the same on every tensor-parallel rank."""

    kind: ClassVar[str] = "mla"
    grows: ClassVar[bool] = True
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    index_head_dim: int = 0  # > 0: the layer also keeps a sparse indexer's key (DeepSeek-V3.2, GLM-5)


@dataclass(frozen=True, repr=False)
class GatedDeltaNet(Layer):
    """Gated DeltaNet (Qwen3-Next, Qwen3.5 and later): a matrix a head and the last rows of a short convolution."""

    kind: ClassVar[str] = "gdn"
    has_state: ClassVar[bool] = True
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 0


@dataclass(frozen=True, repr=False)
class Mamba1(Layer):
    """Mamba-1 (Jamba)."""

    kind: ClassVar[str] = "mamba1"
    has_state: ClassVar[bool] = True
    intermediate_size: int = 0
    state_size: int = 0
    conv_kernel: int = 0


@dataclass(frozen=True, repr=False)
class Mamba2(Layer):
    """Mamba-2 (Nemotron-H, Granite-4-H, Bamba, Falcon-H1)."""

    kind: ClassVar[str] = "mamba2"
    has_state: ClassVar[bool] = True
    intermediate_size: int = 0
    n_groups: int = 0
    num_heads: int = 0
    head_dim: int = 0
    state_size: int = 0
    conv_kernel: int = 0


@dataclass(frozen=True, repr=False)
class KimiDelta(Layer):
    """Kimi Delta Attention (Kimi-Linear)."""

    kind: ClassVar[str] = "kda"
    has_state: ClassVar[bool] = True
    num_heads: int = 0
    head_dim: int = 0
    short_conv_kernel_size: int = 0


@dataclass(frozen=True, repr=False)
class ShortConv(Layer):
    """A gated short convolution (LFM2): the last inputs and nothing else."""

    kind: ClassVar[str] = "short_conv"
    has_state: ClassVar[bool] = True
    conv_dim: int = 0
    conv_L_cache: int = 0


@dataclass(frozen=True, repr=False)
class Lightning(Layer):
    """Lightning (linear) attention (MiniMax-Text-01, MiniMax-M1): one matrix a head."""

    kind: ClassVar[str] = "lightning"
    has_state: ClassVar[bool] = True
    num_heads: int = 0
    head_dim: int = 0


@dataclass(frozen=True, repr=False)
class Parallel(Layer):
    """One layer that keeps several caches side by side (Falcon-H1: Mamba-2 and attention)."""

    parts: tuple[Layer, ...] = ()

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "+".join(part.kind for part in self.parts)


KINDS = {cls.kind: cls for cls in (NoCache, FullAttention, SlidingWindow, ChunkedLocal, LatentAttention,
                                   GatedDeltaNet, Mamba1, Mamba2, KimiDelta, ShortConv, Lightning)}


def caches(layer: Layer) -> tuple[Layer, ...]:
    """The parts of a layer that keep something."""
    if isinstance(layer, Parallel):
        return tuple(part for part in layer.parts if not isinstance(part, NoCache))
    return () if isinstance(layer, NoCache) else (layer,)
