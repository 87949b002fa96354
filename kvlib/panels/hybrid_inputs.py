"""Inputs that several controls of the hybrid lesson share."""

from __future__ import annotations

import altair as alt

from kvlib.controls import Choice, Number, PowerOfTwo, Toggle
from kvlib.panels.hybrid_setups import A100, H100

CACHE_DTYPE = Choice(
    "kv_cache_dtype", {"BF16": "bfloat16", "FP8": "fp8"}, "fp8", style="buttons", label="Type of the cache",
    flag="--kv-cache-dtype", help="Keys and values only. States keep their own types.")
PREFIX_CACHING = Toggle(
    "enable_prefix_caching", True, label="Prefix caching", flag="--enable-prefix-caching",
    help="On by default. It keeps one more state a group, at a block boundary.")
DRAFTS = Number(
    "num_speculative_tokens", 0, min=0, max=7, label="Draft tokens", unit="tokens", flag="--speculative-config",
    help="Tokens that speculative decoding proposes at once; 0 is off.")
TP = Choice(
    "tensor_parallel_size", [1, 2, 4, 8], 2, style="buttons", label="GPUs in tensor parallel",
    flag="--tensor-parallel-size", help="Heads of both kinds are dealt to this many GPUs.")
GPU = Choice(
    "gpu", {"A100": A100, "H100": H100}, A100, style="buttons", label="GPU",
    help="vLLM 0.33 runs GDN's prefill with FlashInfer on Hopper, with Triton on an A100.")


def longest_request(default: int, help: str) -> PowerOfTwo:
    """The control of ``max_model_len``, in tokens."""
    return PowerOfTwo("max_model_len", default, min=1024, max=262_144, label="Longest request", unit="tokens",
                      flag="--max-model-len", help=help)


def own(field="colour"):
    """A colour that stands in the rows."""
    return alt.Color(f"{field}:N", scale=None, legend=None)
