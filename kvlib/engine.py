"""The vLLM flags that decide the size of the cache, under vLLM's own names, checked as they are given."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from .config import load_model
from .errors import EngineError
from .model import Model
from .versions import Version, parse_version

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
DTYPES = {"auto": "auto", "half": "float16", "float": "float32", **{name: name for name in DTYPE_BYTES}}
FP8_DTYPES = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")
PER_TOKEN_HEAD_DTYPES = ("fp8_per_token_head", "int8_per_token_head", "int4_per_token_head")
KV_CACHE_DTYPES = ("auto", "bfloat16", "float16", *FP8_DTYPES, "fp8_ds_mla", *PER_TOKEN_HEAD_DTYPES)
SPECULATIVE_METHODS = ("mtp", "eagle", "eagle3", "ngram")


class Backend(NamedTuple):
    """An attention backend: the smallest block its kernels take, and the block vLLM gives it, in tokens."""

    kernel_block: int
    default_block: int
    mla: bool = False


BACKENDS = {
    "FLASH_ATTN": Backend(16, 16), "TRITON_ATTN": Backend(16, 16), "FLEX_ATTENTION": Backend(16, 16),
    "FLASHINFER": Backend(16, 16), "FLASH_ATTN_4": Backend(128, 128), "CPU_ATTN": Backend(32, 128),
    "FLASH_ATTN_MLA": Backend(16, 16, mla=True), "TRITON_MLA": Backend(16, 16, mla=True),
    "FLASHMLA": Backend(64, 64, mla=True), "FLASHINFER_MLA": Backend(32, 32, mla=True),
    "CUTLASS_MLA": Backend(128, 128, mla=True), "FLASHMLA_SPARSE": Backend(64, 64, mla=True),
    "FLASHINFER_MLA_SPARSE": Backend(64, 64, mla=True),
    "CPU_MLA": Backend(16, 16, mla=True), "AMX_MLA": Backend(32, 128, mla=True),
}


def _integer(low: int, also: tuple = ()):
    expected = f"a whole number of at least {low}" + "".join(f", or {extra}" for extra in also)

    def check(value):
        return (isinstance(value, int) and not isinstance(value, bool)
                and (low <= value < 1 << 62 or value in also)) or value is None, expected

    return check


def _one_of(*choices):
    return lambda value: (value in choices, "one of " + ", ".join(str(c) for c in choices))


def _true_or_false(value):
    return isinstance(value, bool), "True or False"


def _fraction(value):
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and 0 < value <= 1
    return value is None or good, "a fraction above 0 and up to 1, such as 0.92"


def _anything(value):
    return True, ""


def _card(value):
    return value is None or isinstance(value, str) or hasattr(value, "total_bytes"), 'a card\'s name, such as "RTX 4090"'


def _flag(default, check, required=False):
    return field(default=default, metadata={"check": check, "required": required})


@dataclass(frozen=True, init=False)
class Engine:
    """One vLLM launch: its version, its device and the flags that matter for the cache.

    Every argument is a vLLM flag with underscores for dashes. What is left out takes vLLM's default; with no
    ``gpu`` those are the defaults of an 80 GiB data-centre card. ``max_model_len=None`` is the model's own
    maximum and ``-1`` asks for auto-fit. Raises :class:`EngineError` (with the flag's name) on an unknown
    flag or a value out of range.

    >>> Engine(tensor_parallel_size=2, kv_cache_dtype="fp8").tensor_parallel_size
    2
    >>> Engine(tensor_paralel_size=2)
    Traceback (most recent call last):
    kvlib.errors.EngineError: Engine has no flag tensor_paralel_size; did you mean tensor_parallel_size?
    """

    vllm_version: str = _flag("0.33", _anything)
    device: str = _flag("cuda", _one_of("cuda", "cpu"))
    dtype: str = _flag("auto", _one_of(*DTYPES))
    gpu: Any = _flag(None, _card)
    tensor_parallel_size: int = _flag(1, _integer(1), required=True)
    pipeline_parallel_size: int = _flag(1, _integer(1), required=True)
    data_parallel_size: int = _flag(1, _integer(1), required=True)
    decode_context_parallel_size: int = _flag(1, _integer(1), required=True)
    kv_cache_dtype: str = _flag("auto", _one_of(*KV_CACHE_DTYPES))
    block_size: int | None = _flag(None, _integer(1))
    max_model_len: int | None = _flag(None, _integer(1, also=(-1,)))
    max_num_batched_tokens: int | None = _flag(None, _integer(1))
    max_num_seqs: int | None = _flag(None, _integer(1))
    enable_prefix_caching: bool = _flag(True, _true_or_false)
    enforce_eager: bool = _flag(False, _true_or_false)
    num_speculative_tokens: int = _flag(0, _integer(0), required=True)
    speculative_method: str | None = _flag(None, _one_of(None, *SPECULATIVE_METHODS))
    draft_model: Any = _flag(None, _anything)
    mamba_ssm_cache_dtype: str = _flag("auto", _one_of("auto", *DTYPE_BYTES))
    attention_backend: str | None = _flag(None, _one_of(None, *BACKENDS))
    gdn_prefill_backend: str | None = _flag(None, _one_of(None, "auto", "triton", "flashinfer"))
    async_scheduling: bool = _flag(True, _true_or_false)
    disable_hybrid_kv_cache_manager: bool = _flag(False, _true_or_false)
    gpu_memory_utilization: float | None = _flag(None, _fraction)
    kv_cache_memory_bytes: int | None = _flag(None, _integer(1))
    num_gpu_blocks_override: int | None = _flag(None, _integer(1))

    def __init__(self, **flags):
        for name, value in flags.items():
            check_flag(name, value)
        self._take(_DEFAULTS | flags)

    def _take(self, flags: dict) -> None:
        """Hold flags that were each checked already."""
        vars(self).update(flags, _version=parse_version(flags["vllm_version"]))
        if self.draft_model is not None and not isinstance(self.draft_model, Model):
            object.__setattr__(self, "draft_model", load_model(self.draft_model))
        self._check_together()

    def _check_together(self):
        if self.speculative_method and not self.num_speculative_tokens:
            raise EngineError(f"speculative_method is {self.speculative_method} but num_speculative_tokens is 0; "
                              "give the number of draft tokens, such as 3", flag="num_speculative_tokens")
        if self.speculative_method in ("eagle", "eagle3") and self.draft_model is None:
            raise EngineError(f"speculative_method {self.speculative_method} needs draft_model, the draft's own "
                              "config", flag="draft_model")
        if self.tensor_parallel_size % self.decode_context_parallel_size:
            raise EngineError(f"decode_context_parallel_size is {self.decode_context_parallel_size}; it must divide "
                              f"tensor_parallel_size, {self.tensor_parallel_size}",
                              flag="decode_context_parallel_size")
        if self.max_num_batched_tokens and self.max_num_seqs and self.max_num_batched_tokens < self.max_num_seqs:
            raise EngineError(f"max_num_batched_tokens is {self.max_num_batched_tokens:,}; vLLM refuses fewer than "
                              f"max_num_seqs, {self.max_num_seqs:,}", flag="max_num_batched_tokens")

    @property
    def version(self) -> Version:
        """The release whose rules are followed."""
        return self._version

    def replace(self, **flags) -> Engine:
        """A copy with some flags changed."""
        for name, value in flags.items():
            check_flag(name, value)
        copy = object.__new__(type(self))
        copy._take(vars(self) | flags)
        return copy

    def changed(self) -> dict:
        """The flags that differ from vLLM's defaults, in vLLM's order."""
        return {name: getattr(self, name) for name, spec in _FIELDS.items() if getattr(self, name) != spec.default}

    def __repr__(self) -> str:
        return "Engine(" + ", ".join(f"{name}={value!r}" for name, value in self.changed().items()) + ")"


_FIELDS = {spec.name: spec for spec in dataclasses.fields(Engine)}
_DEFAULTS = {name: spec.default for name, spec in _FIELDS.items()}


def check_flag(name: str, value) -> None:
    """Raise EngineError where there is no flag of that name, or it does not take that value."""
    spec = _FIELDS.get(name)
    if spec is None:
        near = get_close_matches(name, _FIELDS, 1)
        raise EngineError(f"Engine has no flag {name}" + (f"; did you mean {near[0]}?" if near else ""),
                          flag=name, expected=near[0] if near else None)
    good, expected = spec.metadata["check"](value)
    if not good or (value is None and spec.metadata["required"]):
        raise EngineError(f"{name} is {_short(value)}; it must be {expected}", flag=name, found=value, expected=expected)


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
