"""What the lesson on a token's price asks of kvlib and the catalogue, and its exercises."""

from __future__ import annotations

import functools

from kvlib import catalog
from kvlib.capacity import bytes_per_token
from kvlib.config import load_model
from kvlib.engine import Engine
from kvlib.errors import EngineError, SizingError
from kvlib.layers import FullAttention, LatentAttention
from kvlib.model import from_layers
from kvlib.pool import plan
from kvlib.tables import Col, esc, table
from kvlib.units import KiB


@functools.cache
def full_attention_models() -> dict:
    """The catalogue's models in which every layer with a cache keeps all tokens per head, by name."""
    found = {}
    for name in catalog.models():
        try:
            model = load_model(name)
            if set(model.kinds) == {"full"} and bytes_per_token(model):
                found[name] = model
        except SizingError:  # refused by name; notebook 07 says why
            continue
    return found


@functools.cache
def price(name: str, kv_cache_dtype: str = "auto", tensor_parallel_size: int = 1) -> int:
    """Bytes a token on each GPU. Raises SizingError where vLLM would not launch."""
    engine = Engine(kv_cache_dtype=kv_cache_dtype, tensor_parallel_size=tensor_parallel_size)
    return bytes_per_token(load_model(name), engine)


@functools.cache
def others(kv_cache_dtype: str, tensor_parallel_size: int) -> tuple[int, ...]:
    """The prices of all full-attention models under these flags, each once."""
    found = set()
    for name in full_attention_models():
        try:
            found.add(price(name, kv_cache_dtype, tensor_parallel_size))
        except SizingError:
            continue
    return tuple(sorted(found))


def declared(num_hidden_layers: int, num_key_value_heads: int, head_dim: int, kv_cache_dtype: str = "auto") -> int:
    """Bytes a token of a model with these numbers and full attention in every layer.

    >>> declared(36, 8, 128), declared(36, 8, 128, "fp8")
    (147456, 73728)
    """
    model = from_layers([{"kind": "full", "count": num_hidden_layers, "num_kv_heads": num_key_value_heads,
                          "head_dim": head_dim}], max_position_embeddings=4096)
    return bytes_per_token(model, Engine(kv_cache_dtype=kv_cache_dtype))


def request_bytes(model, engine: Engine, tokens: int) -> int:
    """Bytes that a request of that many tokens holds on each GPU, by the layers that grow. Raises SizingError.

    >>> request_bytes(load_model("Qwen3-8B"), Engine(), 32_768)
    4831838208
    """
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise EngineError(f"the request is {tokens!r}; it must be a whole number of tokens, at least 1",
                          flag="max_model_len", found=tokens, expected="a whole number of at least 1")
    return bytes_per_token(model, engine) * tokens


def factors(model, engine: Engine | None = None):
    """The factors behind a token's price as a table, one row for each kind of layer that keeps something.

    Raises SizingError where the model or the flags cannot be sized.
    """
    made = plan(model, engine or Engine())
    layers: dict = {}
    for group in made.groups:
        for spec, indices in group.specs:
            layers[spec] = layers.get(spec, 0) + len(indices)
    rows = []
    for spec, count in layers.items():
        heads, key, value = spec.geometry if len(spec.geometry) == 3 else (None, None, None)
        rows.append({
            "kind": spec.kind, "layers": count, "heads": heads, "dtype": made.setup.cache_dtype if heads else None,
            "head_dim": key if key == value else f"{key}, values {value}", "layer": spec.bytes_per_token or None,
            "token": esc(f"{spec.bytes_per_token * count:,}" if spec.grows else
                         "a fixed state" if spec.state_blocks else f"the last {spec.reach:,} tokens only")})
    width = "head_dim, derived" if model.head_dim_source == "derived" else "head_dim"
    columns = [Col("layers"), Col("kind", fmt="text"), Col("heads", "KV heads"), Col("head_dim", width),
               Col("dtype", fmt="text"), Col("layer", "one layer", unit="B"), Col("token", "one token", unit="B")]
    return table(rows, columns, caption=f"{model.name}, on each GPU")


def shortcut_rows() -> list[dict]:
    """Full-attention models whose config states a head_dim that the division hidden_size // heads misses."""
    rows = []
    for name, model in full_attention_models().items():
        layer, stated = model.attention, (model.config.get("text_config") or model.config).get("head_dim")
        shortcut = model.hidden_size // model.num_attention_heads if stated else None
        if stated and shortcut != layer.head_dim:
            true = price(name)
            wrong = declared(len(model.buckets[layer]), layer.num_kv_heads, shortcut)
            rows.append({"model": name, "shortcut": shortcut, "head_dim": layer.head_dim, "wrong": wrong, "true": true,
                         "error": 100 * (wrong / true - 1)})
    return sorted(rows, key=lambda row: (row["error"], row["model"].lower()))


def priced_models() -> list[dict]:
    """Every model of the catalogue with a published size and a cache that grows without end, priced in 16 bits."""
    rows = []
    for name in catalog.models():
        parameters = catalog.model_config(name)["_source"]["total_parameters_published"]
        try:
            model = load_model(name)
            each = bytes_per_token(model, Engine(kv_cache_dtype="bfloat16"))
        except SizingError:
            continue
        if not parameters or not each:
            continue
        kinds = {type(part) for part in model.buckets}
        kind = ("with states" if model.has_state else "latent" if kinds == {LatentAttention} else
                "full attention" if kinds == {FullAttention} else "with windows or chunks")
        rows.append({"model": name, "billions": parameters / 1e9, "kib": each / KiB, "bytes": each, "kind": kind})
    return rows
