"""A model as its cache sees it: one record per layer, and the few numbers that bound its use.

A ``config.json`` is read by :func:`kvlib.config.load_model`; ``from_layers`` takes the layers by hand, for an
architecture that no reader knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .errors import ConfigError
from .fields import text_part
from .layers import KINDS, FullAttention, Layer, caches


@dataclass(frozen=True, eq=False)
class Model:
    """What of a model decides the size of its KV cache.

    Attributes
    ----------
    layers : one :class:`kvlib.layers.Layer` per layer of the model, in order.
    draft_layers : the layers of the model's own multi-token prediction module (MTP), used only on request.
    dtype : the type of weights and activations, as ``bfloat16``; the cache's too where nothing else is asked for.
    max_position_embeddings : the longest request, in tokens, that the config allows (vLLM's derived maximum).
    default_max_model_len : the length vLLM takes when none is given, where that is shorter (LongRoPE), else None.
    yarn_max_model_len : the longest request before vLLM 0.30, which stretched YaRN configs again, where it differs.
    num_attention_heads : query heads, which a tensor-parallel size must divide.
    kv_cache_dtype : the cache type that the checkpoint itself declares, or None.
    mamba_ssm_dtype : the type of the recurrent state that the config names, or None.
    head_dim_source : ``"config"`` or ``"derived"`` (hidden_size // num_attention_heads).
    notes : sentences on whatever was derived or assumed while reading.

    Examples
    --------
    >>> from kvlib import load_model
    >>> model = load_model("Qwen3-8B")
    >>> len(model.layers), model.dtype, model.max_position_embeddings
    (36, 'bfloat16', 40960)
    """

    name: str
    model_type: str
    architecture: str | None
    layers: tuple[Layer, ...]
    draft_layers: tuple[Layer, ...] = ()
    dtype: str = "bfloat16"
    max_position_embeddings: int | None = None
    default_max_model_len: int | None = None
    yarn_max_model_len: int | None = None
    num_attention_heads: int = 1
    hidden_size: int | None = None
    vocab_size: int | None = None
    kv_cache_dtype: str | None = None
    mamba_ssm_dtype: str | None = None
    head_dim_source: str = "config"
    notes: tuple[str, ...] = ()
    config: Mapping = field(default_factory=dict, repr=False)

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def buckets(self) -> dict[Layer, tuple[int, ...]]:
        """The distinct caches of the layers, in order of first use, with the indices of the layers that keep one."""
        found: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            for part in caches(layer):
                found.setdefault(part, []).append(index)
        return {part: tuple(indices) for part, indices in found.items()}

    @cached_property
    def kinds(self) -> dict[str, int]:
        """How many layers keep a cache of each kind, such as ``{"gdn": 48, "full": 16}``."""
        counts: dict[str, int] = {}
        for part, indices in self.buckets.items():
            counts[part.kind] = counts.get(part.kind, 0) + len(indices)
        return counts

    @property
    def has_state(self) -> bool:
        """True when some layer keeps a recurrent state (a hybrid, in vLLM's words)."""
        return any(part.has_state for part in self.buckets)

    @property
    def is_moe(self) -> bool:
        """Does the config speak of routed experts?"""
        text = text_part(self.config)[0]
        for key in ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"):
            count = text.get(key)
            count = count[0] if isinstance(count, list) and count else count  # one for each modality (ERNIE-4.5-VL)
            if isinstance(count, int) and count > 0:
                return True
        return False

    @cached_property
    def attention(self) -> Layer | None:
        """The first attention cache (any kind), whose geometry aligns a hybrid's blocks."""
        return next((part for part in self.buckets if not part.has_state), None)

    @cached_property
    def num_key_value_heads(self) -> int | None:
        """KV heads of the first attention layer; None where there is none or it is latent (MLA)."""
        return self.attention.num_kv_heads if isinstance(self.attention, FullAttention) else None

    from_layers = staticmethod(lambda *args, **kwargs: from_layers(*args, **kwargs))

    def __repr__(self) -> str:
        parts = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        return f"Model({self.name!r}: {len(self.layers)} layers, {parts})"


def from_layers(layers: Iterable, *, name: str = "by hand", dtype: str = "bfloat16",
                max_position_embeddings: int | None = None, num_attention_heads: int | None = None,
                draft_layers: Iterable = (), mamba_ssm_dtype: str | None = None) -> Model:
    """Declare a model's layers by hand.

    Parameters
    ----------
    layers : records of :mod:`kvlib.layers`, or dicts with ``kind`` (a word of ``layers.KINDS``), that kind's
        fields, and optionally ``count``. ``v_head_dim`` is ``head_dim`` where it is left out.
    num_attention_heads : query heads; without it any tensor-parallel size is accepted.

    Examples
    --------
    >>> from_layers([dict(kind="full", count=36, num_kv_heads=8, head_dim=128)]).kinds
    {'full': 36}
    """
    return Model(name=name, model_type="by hand", architecture=None, layers=_declared(layers),
                 draft_layers=_declared(draft_layers), dtype=dtype, max_position_embeddings=max_position_embeddings,
                 num_attention_heads=num_attention_heads or 0, mamba_ssm_dtype=mamba_ssm_dtype,
                 notes=("layers declared by hand",))


def _declared(layers: Iterable) -> tuple[Layer, ...]:
    found: list[Layer] = []
    for position, item in enumerate(layers):
        if isinstance(item, Layer):
            found.append(item)
            continue
        if not isinstance(item, Mapping) or item.get("kind") not in KINDS:
            raise ConfigError(f"layer {position} is {item!r}; it must be a layer record or a dict whose kind is one of "
                              f"{', '.join(KINDS)}", field=f"layers[{position}]", found=item)
        fields = {key: value for key, value in item.items() if key not in ("kind", "count")}
        if "head_dim" in fields and issubclass(KINDS[item["kind"]], FullAttention):
            fields.setdefault("v_head_dim", fields["head_dim"])
        for key, value in {**fields, "count": item.get("count", 1)}.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigError(f"layer {position}: {key} is {value!r}; it must be a whole number",
                                  field=f"layers[{position}].{key}", found=value, expected="a whole number")
        try:
            layer = KINDS[item["kind"]](**fields)
        except TypeError:
            known = ", ".join(KINDS[item["kind"]].__dataclass_fields__)
            raise ConfigError(f"layer {position} ({item['kind']}) has fields {', '.join(fields)}; it takes {known}",
                              field=f"layers[{position}]", found=sorted(fields), expected=known) from None
        found.extend([layer] * item.get("count", 1))
    if len(found) > 10_000:
        raise ConfigError(f"{len(found):,} layers declared; more than 10,000 is taken for a mistake", field="layers")
    return tuple(found)
