"""The weights on one GPU: from a checkpoint's own files, else from its config, part by part.

A quantization shrinks some parts only, and adds scales; tensor parallelism splits most parts, and copies some.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from . import catalog
from .engine import DTYPE_BYTES, Engine
from .errors import ConfigError
from .fields import text_part
from .layers import FullAttention, LatentAttention
from .memory import Band
from .model import Model
from .parameters import EXPERTS, Parameters, parameters
from .units import gib

MAX_HEADER = 100 << 20
MAX_BYTES = 1 << 50     # a thousand TiB: no checkpoint
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Quantization:
    """How weights are stored: bits of a value, and a scale of ``scale_bits`` for each ``group`` values (0: per row).

    ``parts`` names what is quantized: "matrices" (attention, states, MLP, experts) or "experts" alone.
    """

    name: str
    bits: int
    group: int = 0
    scale_bits: int = 0
    parts: str = "matrices"

    @property
    def bytes_per_value(self) -> float:
        return (self.bits + (self.scale_bits / self.group if self.group else 0)) / 8


QUANTIZATIONS = {
    "fp8": Quantization("fp8", 8), "fp8 blocks": Quantization("fp8 blocks", 8, 128 * 128, 32),
    "int8": Quantization("int8", 8), "int4": Quantization("int4", 4, 128, 20), "awq": Quantization("awq", 4, 128, 20),
    "gptq": Quantization("gptq", 4, 128, 20), "mxfp4": Quantization("mxfp4", 4, 32, 8, "experts"),
    "nvfp4": Quantization("nvfp4", 4, 16, 8), "bitsandbytes": Quantization("bitsandbytes", 4, 64, 32),
}


#: Bytes that launches loaded over bytes computed here: least, usual, most among the reports of data/weights_seen.csv.
LOADED_OVER_COMPUTED = {
    "16-bit": (0.99, 1.0, 1.03), "8-bit": (0.99, 1.0, 1.05), "4-bit": (0.99, 1.05, 1.10),
    "16-bit, vision": (1.0, 1.02, 1.19), "8-bit, vision": (1.0, 1.04, 1.10), "4-bit, vision": (1.0, 1.2, 1.75)}


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes on one GPU. ``kind`` is "measured" (the checkpoint's files) or "computed" (its config)."""

    bytes: int
    kind: str
    source: str
    notes: tuple[str, ...] = ()


def quantization_of(model: Model) -> Quantization | None:
    """The quantization a config declares; None for plain 16-bit weights. ConfigError where it is not known."""
    declared = model.config.get("quantization_config") or text_part(model.config)[0].get("quantization_config")
    if not isinstance(declared, Mapping):
        beside = model.config.get("_hf_quant_config")
        declared = beside.get("quantization") if isinstance(beside, Mapping) else None
        if not isinstance(declared, Mapping):
            return None
    method = str(declared.get("quant_method") or "modelopt").lower()
    algorithm = str(declared.get("quant_algo") or "").lower()
    if method == "fp8" or algorithm == "fp8":
        return QUANTIZATIONS["fp8 blocks" if declared.get("weight_block_size") else "fp8"]
    if method in ("awq", "gptq"):
        return Quantization(method, _whole(model, declared, "bits", 4, 2, 16), max(0, _whole(model, declared, "group_size", 128, -1)), 20)
    if method == "bitsandbytes":
        return QUANTIZATIONS["int8" if declared.get("load_in_8bit") is True else "bitsandbytes"]
    if method == "mxfp4" or algorithm == "mxfp4":
        return QUANTIZATIONS["mxfp4"]
    if algorithm == "nvfp4":
        return QUANTIZATIONS["nvfp4"]
    if method == "compressed-tensors":
        groups = declared.get("config_groups")
        for group in groups.values() if isinstance(groups, Mapping) else ():
            weights = group.get("weights") if isinstance(group, Mapping) else None
            if isinstance(weights, Mapping) and weights.get("num_bits") is not None:
                bits, size = _whole(model, weights, "num_bits", 8, 2, 16), max(0, _whole(model, weights, "group_size", 0, -1))
                experts = bool(parameters(model).experts) and declared.get("ignore") is not None
                return Quantization(f"{bits}-bit", bits, size, 16 if size else 0, "experts" if experts else "matrices")
    raise ConfigError(f"{model.name}: how its weights are stored ({method} {algorithm}) is not known here; type the "
                      "weights from its \"Model loading took\" line", field="quantization_config", found=method)


def _whole(model: Model, place: Mapping, key: str, default: int, low: int, high: int = 1 << 20) -> int:
    """A whole number of a quantization's config; ConfigError for anything else."""
    value = place.get(key)
    value = int(value) if isinstance(value, str) and value.isdigit() and len(value) < 8 else value
    if value is None or value == 0 and low < 0:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{model.name}: {key} of quantization_config is {value!r:.40}; it must be a whole number from {max(low, 0)} "
                          f"to {high:,}", field=key, found=value, expected="a whole number")
    return value


@lru_cache(maxsize=4096)
def weights_per_gpu(model: Model, *, dtype: str = "auto", quantization: str | None = None,
                    tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1, draft: bool = False) -> Weights:
    """The weights of one GPU computed from a config, in bytes.

    ``quantization`` is a name of ``QUANTIZATIONS``, "none", or None for what the config declares. With pipeline
    stages the layers are taken as evenly spread.

    >>> from kvlib import load_model
    >>> round(weights_per_gpu(load_model("Qwen3-8B")).bytes / 2**30, 2)      # a launch printed 15.27
    15.26
    """
    if quantization is not None and quantization != "none" and quantization not in QUANTIZATIONS:
        raise ConfigError(f"weights stored as {quantization!r} are not known; use one of {', '.join(QUANTIZATIONS)} or "
                          "none", field="quantization", found=quantization)
    stored = quantization_of(model) if quantization is None else QUANTIZATIONS.get(quantization)
    counted, width = parameters(model), DTYPE_BYTES.get(model.dtype if dtype == "auto" else dtype, 2)
    tp, pp = tensor_parallel_size, pipeline_parallel_size
    copied = _copied(model, tp)
    small = (counted.experts if stored and stored.parts == "experts" else counted.matrices) if stored else 0
    large = counted.total - small + (counted.draft if draft else 0)
    split = large - copied - counted.norms
    total = (split / tp + copied + counted.norms) * width + (small / tp * stored.bytes_per_value if stored else 0)
    notes = list(counted.notes)
    if copied:
        notes.append(f"{copied:,} parameters stand on every GPU whole")
    return Weights(round(total / pp), "computed", _words(counted, stored, width, tp, pp), tuple(notes))


def loaded_band(model: Model, weights: Weights, quantization: str | None = None) -> Band:
    """How far the weights that a launch loads may be from computed ones, in bytes. See LOADED_OVER_COMPUTED.

    >>> from kvlib import load_model
    >>> model = load_model("Qwen3-8B")
    >>> round(loaded_band(model, weights_per_gpu(model)).high / 2**30, 2)
    15.71
    """
    stored = quantization_of(model) if quantization is None else QUANTIZATIONS.get(quantization)
    bits = 16 if stored is None else 8 if stored.bits > 4 else 4
    case = f"{bits}-bit" + (", vision" if "vision_config" in model.config else "")
    low, typical, high = (round(weights.bytes * factor) for factor in LOADED_OVER_COMPUTED[case])
    return Band(low, typical, high, f"{weights.source}; what launches loaded was "
                f"{LOADED_OVER_COMPUTED[case][0]:g} to {LOADED_OVER_COMPUTED[case][2]:g} times that ({case} weights)")


class Expected(NamedTuple):
    """The weights that a launch will find on one GPU, in bytes: a number where launches agree, else a band."""

    value: int | Band
    kind: str
    source: str
    notes: tuple[str, ...] = ()


def expected_weights(model: Model, engine: Engine, quantization: str | None = None) -> Expected:
    """The weights on one GPU before a launch: "measured" where launches of this very model printed them, else "computed".

    ``quantization`` is a name of ``QUANTIZATIONS``, "none", or None for what the config declares. Raises ConfigError where
    the parameters cannot be counted from the config.

    >>> from kvlib import load_model
    >>> found = expected_weights(load_model("Qwen3-8B"), Engine(tensor_parallel_size=2))
    >>> found.kind, round(found.value.typical / 2**30, 2)
    ('computed', 7.63)
    """
    tp, pp, draft = engine.tensor_parallel_size, engine.pipeline_parallel_size, engine.speculative_method == "mtp"
    as_reported = engine.dtype != "float32" and not draft and pp == 1
    seen = _seen(model, quantization, tp) if as_reported else None
    if seen is not None:
        return Expected(seen[0], "measured", "launches printed it: " + seen[1])
    dtype = engine.dtype if engine.dtype in ("auto", "float32") else "auto"
    return _computed(model, dtype, quantization, tp, pp, draft)


@lru_cache(maxsize=1024)
def _computed(model: Model, dtype: str, quantization: str | None, tp: int, pp: int, draft: bool) -> Expected:
    computed = weights_per_gpu(model, dtype=dtype, quantization=quantization, tensor_parallel_size=tp,
                               pipeline_parallel_size=pp, draft=draft)
    band = loaded_band(model, computed, quantization)
    return Expected(band, "computed", band.source, computed.notes)


@lru_cache(maxsize=1024)
def _seen(model: Model, quantization: str | None, tensor_parallel_size: int) -> tuple[int | Band, str] | None:
    """Weights that launches of this very model printed, from the least to the most; None where there is no report."""
    dtype = "bfloat16" if quantization == "none" else quantization
    try:
        if model.config != catalog.model_config(model.name):
            return None
        found, seen = (look(model.name, dtype, tensor_parallel_size) for look in (catalog.weights, catalog.loaded_gib))
    except ConfigError:
        return None
    if found.kind != "measured":
        return None
    low, high = gib(min(seen)), gib(max(seen))
    band = Band(low, min(max(found.bytes, low), high), high, found.source)
    return (band.typical if low == high else band), found.source


def _words(counted: Parameters, stored: Quantization | None, width: int, tp: int, pp: int) -> str:
    text = f"{counted.total:,} parameters of the config × {width} B" if stored is None else \
        f"{counted.total:,} parameters of the config, {stored.parts} in {stored.name}"
    return text + (f" ÷ {tp * pp} GPUs" if tp * pp > 1 else "")


def _copied(model: Model, tp: int) -> int:
    """Parameters that tensor parallelism does not split: a latent layer's compressions, a router, spare KV heads."""
    if tp == 1:
        return 0
    text = text_part(model.config)[0]
    hidden, total = model.hidden_size or 0, 0
    experts = next((text[key] for key in EXPERTS if isinstance(text.get(key), int)), 0)
    for layer in model.layers:
        if isinstance(layer, LatentAttention):
            total += hidden * (layer.kv_lora_rank + layer.qk_rope_head_dim + (text.get("q_lora_rank") or 0))
        elif isinstance(layer, FullAttention) and tp > layer.num_kv_heads:
            spare = layer.num_kv_heads * (layer.head_dim + layer.v_head_dim) * hidden
            total += round(spare * (1 / layer.num_kv_heads - 1 / tp))
    return total + experts * hidden * len(model.layers)


def checkpoint_bytes(folder: str | os.PathLike) -> Weights | None:
    """The bytes of a checkpoint folder's ``*.safetensors``, from their headers or index; None where there are none.

    Where there is an index, only its files count, as for vLLM: a second copy in ``consolidated.safetensors`` does not, and
    a download that is not whole is taken by the index's own total. This is what stands on disk: MTP layers and a tied head
    that is stored all the same are in it.
    """
    folder = Path(folder)
    index = _index_of(folder / INDEX)
    named = index.get("weight_map")
    try:
        files = {file.name: file for file in folder.glob("*.safetensors")}
        if isinstance(named, Mapping) and named:
            files = {name: files.get(name) for name in map(str, named.values())}
        sizes = [size for file in files.values() if file is not None and (size := _header_bytes(file)) is not None]
    except OSError:
        return None
    if sizes and len(sizes) == len(files):
        return Weights(sum(sizes), "measured", f"headers of {len(files)} safetensors files")
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, bool) or not isinstance(total, (int, float)) or not 1 <= total < MAX_BYTES or total != int(total):
        return None
    return Weights(int(total), "measured", INDEX)


def _index_of(file: Path) -> Mapping:
    """A checkpoint's index; empty where there is none that can be read."""
    try:
        if not file.is_file() or file.stat().st_size > MAX_HEADER:
            return {}
        index = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return index if isinstance(index, Mapping) else {}


def _header_bytes(file: Path) -> int | None:
    """Bytes of the tensors that a safetensors header lists; None where it cannot be read."""
    try:
        if not file.is_file():      # opening a pipe would wait for ever
            return None
        with open(file, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(MAX_HEADER, file.stat().st_size):
                return None
            header = json.loads(stream.read(length))
        ends = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
        sizes = [end - start for start, end in ends]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    whole = all(isinstance(size, int) and 0 <= size < MAX_BYTES for size in sizes)
    return sum(sizes) if whole and 0 < sum(sizes) < MAX_BYTES else None
