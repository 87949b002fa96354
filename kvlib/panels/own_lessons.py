"""What notebook 06 shows besides its panel: weights computed and loaded."""

from __future__ import annotations

from functools import cache

from kvlib import catalog, load_model
from kvlib.errors import SizingError
from kvlib.units import GiB
from kvlib.weights import weights_per_gpu

_STORED = {"bfloat16": "none", "float16": "none", "fp8": "fp8", "int8": "int8", "int4": "int4", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
SHOWN = (("Qwen3-8B", "bfloat16", 1), ("Gemma-2-27b", "bfloat16", 1), ("Llama-3.3-70B", "int8", 2), ("Qwen3-30B-A3B", "bfloat16", 1),
         ("DeepSeek-R1", "fp8", 8), ("Llama-3.1-8B", "int4", 1), ("gpt-oss-120b", "mxfp4", 1), ("Gemma-3-4b", "bfloat16", 1),
         ("Gemma-4-31B-NVFP4", "nvfp4", 1))


@cache
def _pairs() -> tuple[dict, ...]:
    """Every report of loaded weights whose model and storage are known, with what is computed."""
    rows = []
    for row in catalog.table("weights_seen.csv"):
        name, stored, gpus = row["catalog_name"], row["weight_dtype"], int(row["tensor_parallel_size"] or 1)
        if not name or stored not in _STORED:
            continue
        try:
            counted = weights_per_gpu(load_model(name), quantization=_STORED[stored], tensor_parallel_size=gpus).bytes / GiB
        except SizingError:
            continue
        loaded = float(row["loaded_gib"])
        rows.append({"model": name, "stored": stored, "gpus": gpus, "computed": counted, "loaded": loaded,
                     "off": 100 * (counted / loaded - 1)})
    return tuple(rows)


def measured_weights() -> int:
    """How many reports there are to compare with."""
    return len(_pairs())


def computed_weights() -> list[dict]:
    """One report of each kind, nearest first.

    >>> computed_weights()[0]["model"], round(computed_weights()[-1]["off"])
    ('Gemma-2-27b', -42)
    """
    rows = [next(row for row in _pairs() if (row["model"], row["stored"], row["gpus"]) == shown) for shown in SHOWN]
    return sorted(rows, key=lambda row: abs(row["off"]))
