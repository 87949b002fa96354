"""The launch of the hybrid lesson, its variations, and what a sequence leaves in each kind of layer.

Qwen3.8-27B on two A100, TP=2, FP8 cache, 52.89 GiB printed; see :data:`kvlib.catalog` row B01.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from kvlib import Engine, SizingError, catalog, from_layers, load_model
from kvlib.capacity import Sizing, size_plan
from kvlib.model import Model
from kvlib.pool import plan
from kvlib.units import gib
from kvlib.versions import LEFT_VLLM_AFTER

MODEL = load_model("Qwen3.8-27B")
A100, H100 = catalog.gpu("A100 80GB SXM"), catalog.gpu("H100 SXM 80GB")
AVAILABLE_GIB = 52.89  # as printed
AVAILABLE = gib(AVAILABLE_GIB)
LENGTH = 132_096       # max_model_len of the log, in tokens
_FLAGS = {"gpu": A100, "tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "max_model_len": LENGTH}


@lru_cache(maxsize=4096)
def _engine(**flags) -> Engine:
    return Engine(**flags)


def drafts(model: Model, num_speculative_tokens: int) -> dict:
    """The flags for that many draft tokens: by the model's own MTP layer, by n-gram where it has none."""
    if not num_speculative_tokens:
        return {}
    return {"num_speculative_tokens": num_speculative_tokens,
            "speculative_method": "mtp" if model.draft_layers else "ngram"}


def launch(model: Model = MODEL, *, available_bytes: int | None = AVAILABLE, **flags) -> Sizing:
    """The launch of the log with some flags changed; bytes per GPU.

    >>> launch().kv_cache_tokens, launch(max_model_len=8_192).kv_cache_tokens
    (3208045, 1508693)
    """
    if "num_gpu_blocks_override" in flags:
        available_bytes = None
    return size_plan(plan(model, _engine(**{**_FLAGS, **flags})), available_bytes=available_bytes)


def blocks(sizing: Sizing) -> tuple[int, int]:
    """Blocks of one request for its tokens, and for its states.

    >>> blocks(launch())
    (85, 6)
    """
    tokens = sum(group.blocks_per_request for group in sizing.groups if group.is_attention)
    return tokens, sizing.blocks_per_request - tokens


def prints(sizing: Sizing) -> bool:
    """Does vLLM get as far as to print the size? The check of ``max_num_seqs`` comes after it."""
    return sizing.outcome in ("passes", "max_num_seqs")


@lru_cache(maxsize=64)
def with_groups(state_groups: int, draft: bool = False) -> Model:
    """16 of Qwen3.8-27B's full-attention layers and 16 GDN layers for each group of states; 0: attention alone.

    >>> with_groups(3).kinds
    {'gdn': 48, 'full': 16}
    """
    full, gdn = (next(layer for layer in MODEL.layers if layer.kind == kind) for kind in ("full", "gdn"))
    return from_layers([gdn] * 16 * state_groups + [full] * (16 + draft), name=f"{state_groups} groups of states",
                       num_attention_heads=MODEL.num_attention_heads, mamba_ssm_dtype=MODEL.mamba_ssm_dtype)


@cache
def readable() -> dict[str, Model]:
    """Every model of the catalogue that can be read, by name."""
    found = {}
    for name in catalog.models():
        try:
            found[name] = MODEL if name == MODEL.name else load_model(name)
        except SizingError:  # refused by name, never guessed
            continue
    return found


def last_version(model: Model) -> str:
    """The newest release that serves the model."""
    left = LEFT_VLLM_AFTER.get(model.architecture or "")
    return ".".join(map(str, left)) if left else "0.33"


@cache
def mixed() -> dict[str, Model]:
    """The models whose layers fall into more than one group."""
    found = {}
    for name, model in readable().items():
        if len(model.buckets) > 1 and len(_plan(model, "auto").groups) > 1:
            found[name] = model
    return found


class Kept(NamedTuple):
    """What all layers of one kind keep of a sequence, in bytes for the whole model.

    ``per_token`` for each of up to ``reach`` tokens (0: of all), ``fixed`` whatever the length.
    """

    kind: str
    layers: int
    per_token: int
    reach: int
    fixed: int

    def bytes(self, tokens: int) -> int:
        return self.fixed + self.per_token * (min(tokens, self.reach) if self.reach else tokens)


def _plan(model: Model, kv_cache_dtype: str):
    return plan(model, _engine(vllm_version=last_version(model), kv_cache_dtype=kv_cache_dtype, max_model_len=4096))


@lru_cache(maxsize=512)
def kept(model: Model, kv_cache_dtype: str = "auto") -> tuple[Kept, ...]:
    """What a sequence leaves in each kind of layer, before TP and without padding.

    >>> [(k.kind, k.bytes(1)) for k in kept(MODEL, "fp8")]
    [('gdn', 153944064), ('full', 32768)]
    """
    found: dict[tuple, Kept] = {}
    for group in _plan(model, kv_cache_dtype).groups:
        for spec, indices in group.specs:
            was = found.get((spec.kind, spec.reach), Kept(spec.kind, 0, 0, spec.reach, 0))
            count, state = len(indices), spec.unpadded_bytes if spec.state_blocks else 0
            found[spec.kind, spec.reach] = was._replace(
                layers=was.layers + count, per_token=was.per_token + count * spec.bytes_per_token,
                fixed=was.fixed + count * state)
    return tuple(found.values())
