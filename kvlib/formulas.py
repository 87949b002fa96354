"""Five ways to count what a request keeps: the layers one by one, and four slips that calculators make.

Each formula is a function of a config (a path, a catalogue name, a dict, or a :class:`kvlib.Model`). A slip changes
one thing and leaves the rest right, so on a model that it does not touch it gives the right figure. All figures are
bytes for the whole model, before it is split over GPUs, without vLLM's whole blocks and padding.

>>> ours("Qwen3-30B-A3B").per_token, hidden_over_heads("Qwen3-30B-A3B").per_token
(98304, 49152)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from .config import load_model
from .engine import Engine
from .errors import ConfigError
from .fields import text_part
from .layers import FullAttention, LatentAttention, Layer, caches
from .model import Model
from .resolve import resolve
from .spec import attention_bytes_per_token, indexer_bytes_per_token, state_bytes, value_bytes


class Part(NamedTuple):
    """Layers alike: bytes a token over all of them, for at most ``reach`` tokens (0: for all), and ``fixed`` bytes."""

    layers: int
    per_token: int
    reach: int = 0
    fixed: int = 0
    working: str = ""

    def bytes(self, tokens: int) -> int:
        return self.fixed + self.per_token * (min(tokens, self.reach) if self.reach else tokens)


class Count(NamedTuple):
    """What one formula says of a model."""

    parts: tuple[Part, ...]

    @property
    def per_token(self) -> int:
        """Bytes that one further token costs, once windows are full."""
        return sum(part.per_token for part in self.parts if not part.reach)

    @property
    def fixed(self) -> int:
        """Bytes that stop growing: states, and windows when full."""
        return sum(part.fixed + part.per_token * part.reach for part in self.parts)

    @property
    def working(self) -> str:
        """The growing part with its numbers in."""
        return " + ".join(part.working for part in self.parts if part.per_token and not part.reach) or "nothing grows"

    def bytes(self, tokens: int) -> int:
        """Bytes that a request of so many tokens keeps."""
        return sum(part.bytes(tokens) for part in self.parts)


Slip = Callable[[Model, tuple[Layer, ...]], tuple[Layer, ...]]


def ours(config: Any, kv_cache_dtype: str = "auto") -> Count:
    """Each layer by its own kind, heads and widths. Source: vLLM's kv_cache_interface.py and mamba_utils.py.

    >>> ours("Qwen3.5-27B").per_token, ours("Qwen3.5-27B").fixed
    (65536, 153944064)
    """
    return counted(config, (), kv_cache_dtype)


def attention_heads(config: Any, kv_cache_dtype: str = "auto") -> Count:
    """``num_attention_heads`` in place of the KV heads: 2 × layers × heads × head_dim × bytes. Right before GQA.

    >>> attention_heads("Qwen3-8B").per_token
    589824
    """
    return counted(config, ("attention_heads",), kv_cache_dtype)


def hidden_over_heads(config: Any, kv_cache_dtype: str = "auto") -> Count:
    """``hidden_size // num_attention_heads`` in place of ``head_dim``. Right where the config has no ``head_dim``.

    >>> hidden_over_heads("Qwen3-8B") == ours("Qwen3-8B")      # 4,096 // 32 is its head_dim
    True
    """
    return counted(config, ("hidden_over_heads",), kv_cache_dtype)


def mla_as_heads(config: Any, kv_cache_dtype: str = "auto") -> Count:
    """A latent-attention layer taken for ``num_key_value_heads`` heads of ``hidden // heads``: no latent row is seen.

    >>> mla_as_heads("DeepSeek-V3").per_token, ours("DeepSeek-V3").per_token
    (1748992, 70272)
    """
    return counted(config, ("mla_as_heads",), kv_cache_dtype)


def every_layer(config: Any, kv_cache_dtype: str = "auto") -> Count:
    """All ``num_hidden_layers`` as full attention of the config's plain heads and head_dim, windows and states alike.

    >>> every_layer("gpt-oss-120b").per_token, every_layer("gpt-oss-120b").fixed
    (73728, 0)
    """
    return counted(config, ("every_layer",), kv_cache_dtype)


#: The five, in the order in which the lesson tells them.
FORMULAS: dict[str, Callable[..., Count]] = {
    "ours": ours,
    "attention_heads": attention_heads,
    "hidden_over_heads": hidden_over_heads,
    "mla_as_heads": mla_as_heads,
    "every_layer": every_layer,
}
#: What each slip is, in words that finish "counts …".
WORDS = {
    "attention_heads": "attention heads as KV heads",
    "hidden_over_heads": "head_dim as hidden_size / num_attention_heads",
    "mla_as_heads": "latent attention (MLA) as if each head kept keys and values",
    "rope_heads": "latent attention (MLA) as heads of qk_rope_head_dim",
    "every_layer": "every layer in full, windows and states too",
}


def counted(config: Any, slips: tuple[str, ...] = (), kv_cache_dtype: str = "auto") -> Count:
    """The count with any of the slips of :data:`WORDS` made together.

    Raises ConfigError on an unknown slip, or where the config lacks the field that a slip would read.

    >>> counted("gpt-oss-120b", ("every_layer", "hidden_over_heads")).per_token
    51840
    """
    model = config if isinstance(config, Model) else _read(config) if isinstance(config, str) else load_model(config)
    return _counted(model, tuple(sorted(slips, key=_order)), kv_cache_dtype)


_read = lru_cache(maxsize=256)(load_model)


@lru_cache(maxsize=4096)
def _counted(model: Model, slips: tuple[str, ...], kv_cache_dtype: str) -> Count:
    layers = model.layers
    for slip in slips:
        layers = _SLIPS[slip](model, layers)
    engine = Engine(kv_cache_dtype=kv_cache_dtype, vllm_version="0.23")  # the last that serves every architecture
    setup = resolve(model, engine)
    found: dict[Layer, int] = {}
    for layer in layers:
        for part in caches(layer):
            found[part] = found.get(part, 0) + 1
    return Count(tuple(_part(layer, count, model, engine, setup) for layer, count in found.items()))


def _part(layer: Layer, count: int, model: Model, engine: Engine, setup) -> Part:
    if layer.has_state:
        return Part(count, 0, fixed=count * state_bytes(layer, model, engine, setup), working=f"{count} states")
    each = attention_bytes_per_token(layer, setup.cache_dtype, 1)
    width = value_bytes(setup.cache_dtype)
    if isinstance(layer, LatentAttention):
        working = f"{count} layers × ({layer.kv_lora_rank} + {layer.qk_rope_head_dim}) × {width} B"
        if layer.index_head_dim:
            indexer = indexer_bytes_per_token(layer.index_head_dim)
            each, working = each + indexer, f"{working} + {count} × {indexer} B of indexer"
        return Part(count, count * each, working=working)
    wide = f"2 × {layer.head_dim}" if layer.head_dim == layer.v_head_dim else f"({layer.head_dim} + {layer.v_head_dim})"
    reach = getattr(layer, "sliding_window", 0) or getattr(layer, "attention_chunk_size", 0)
    return Part(count, count * each, reach, working=f"{count} layers × {layer.num_kv_heads} heads × {wide} × {width} B")


def _order(slip: str) -> int:
    if slip not in _SLIPS:
        raise ConfigError(f"there is no slip {slip!r}; they are {', '.join(_SLIPS)}", field="slips", found=slip)
    return list(_SLIPS).index(slip)


def _field(model: Model, name: str) -> int:
    value = text_part(model.config)[0].get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(
            f"{model.name}: this formula reads {name}, and the config has none; count its layers one by one",
            field=name,
            found=value,
        )
    return value


def _plain(model: Model) -> FullAttention:
    """One layer as a table of plain fields shows it."""
    text = text_part(model.config)[0]
    heads = _field(model, "num_attention_heads")
    kept = text.get("num_key_value_heads") or heads
    width = text.get("head_dim") or _field(model, "hidden_size") // heads
    return FullAttention(kept, width, width)


def _as_heads(width: Callable[[Model, LatentAttention], int]) -> Slip:
    def slip(model, layers):
        return tuple(
            FullAttention(_plain(model).num_kv_heads, *[width(model, layer)] * 2) if isinstance(layer, LatentAttention) else layer
            for layer in layers
        )

    return slip


def _in_each(**changes: Callable[[Model], int]) -> Slip:
    """The attention layers with some fields replaced; windows and states stay what they are."""

    def slip(model, layers):
        if not any(isinstance(layer, FullAttention) for layer in layers):
            return layers
        values = {name: read(model) for name, read in changes.items()}
        return tuple(replace(layer, **values) if isinstance(layer, FullAttention) else layer for layer in layers)

    return slip


def _all_alike(model: Model, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    if any(isinstance(layer, LatentAttention) for layer in layers):
        first = next(layer for layer in layers if isinstance(layer, LatentAttention))
        return (first,) * len(layers)
    return (_plain(model),) * len(layers)


def _shortcut(model: Model) -> int:
    return _field(model, "hidden_size") // _field(model, "num_attention_heads")


# In the order in which they are made: what a layer is, then how many there are, then its heads and width.
_SLIPS: dict[str, Slip] = {
    "mla_as_heads": _as_heads(lambda model, _: _plain(model).head_dim),
    "rope_heads": _as_heads(lambda _, layer: layer.qk_rope_head_dim),
    "every_layer": _all_alike,
    "attention_heads": _in_each(num_kv_heads=lambda model: _field(model, "num_attention_heads")),
    "hidden_over_heads": _in_each(head_dim=_shortcut, v_head_dim=_shortcut),
}
