"""Which slip explains a calculator's figure: the formulas of :mod:`kvlib.formulas`, alone and two together.

>>> print(diagnose("Qwen3-30B-A3B", "49,152 B").sentence)
0.50 of what vLLM keeps. It would come from counting head_dim as hidden_size / num_attention_heads, or half of the bytes (8 bits, \
keys without values, or one of two GPUs). Put Qwen3-8B to your tool: it tells them apart (147,456 or 73,728 B a token).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import Any, NamedTuple

from .capacity import size
from .config import load_model
from .engine import Engine
from .errors import SizingError
from .formulas import WORDS, Count, counted
from .model import Model
from .units import GiB, KiB, MiB

UNITS = {"b": 1, "kib": KiB, "mib": MiB, "gib": GiB, "kb": 10**3, "mb": 10**6, "gb": 10**9}
LEAST_MISS = 0.0005  # of the figure: a tool may have rounded on its way
#: Models whose figures differ under most slips, to be put to a tool in this order.
PROBES = ("Qwen3-8B", "Qwen3-30B-A3B", "gpt-oss-120b", "DeepSeek-V3", "Qwen3.5-27B", "Gemma-4-31B")


class Factor(NamedTuple):
    """Another slip: everything times a number."""

    times: float
    words: str


FACTORS = (
    Factor(0.5, "half of the bytes (8 bits, keys without values, or one of two GPUs)"),
    Factor(2, "twice the bytes (32 bits a number)"),
    Factor(0.25, "a quarter of the bytes (4 bits a number)"),
    Factor(0.265625, "the cache in the width of MXFP4 weights (4.25 bits)"),
    Factor(1 / 4, "one GPU's share at tensor_parallel_size 4"),
    Factor(1 / 8, "one GPU's share at tensor_parallel_size 8"),
)


@dataclass(frozen=True)
class Cause:
    """One explanation: the slips of :data:`kvlib.formulas.WORDS`, a factor, or both, and the bytes they give."""

    slips: tuple[str, ...]
    factor: Factor | None
    bytes: float
    first_token: bool = False

    @property
    def words(self) -> str:
        """What was counted, as it follows "counting"."""
        said = [WORDS[slip] for slip in self.slips]
        if self.first_token:
            said.append("the cost of a request of one token, whose states and first rows are in it")
        if self.factor is not None:
            said.append(self.factor.words)
        return " together with ".join(said)


@dataclass(frozen=True)
class Diagnosis:
    """A figure beside the right one. ``causes`` is empty where nothing tried explains it; ``agrees`` where it is right."""

    model: str
    figure: float
    right: float
    reserved: int
    tokens: int
    agrees: str
    causes: tuple[Cause, ...]
    apart: str = ""

    @property
    def ratio(self) -> float:
        return self.figure / self.right

    @property
    def sentence(self) -> str:
        """The answer in a sentence or two."""
        if self.agrees:
            return f"Agrees: {self.agrees}."
        start = f"{_times(self.ratio)} what vLLM keeps. "
        if not self.causes:
            return (
                start + "None of the slips tried, alone or two together, gives it: ask which layers it counts, and in what width."
            )
        told = ", or ".join(cause.words for cause in self.causes[:3])
        return f"{start}It would come from counting {told}." + (f" {self.apart}" if self.apart else "")


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio >= 1.05 else f"{ratio:.2f} of"


def read_bytes(text: Any) -> tuple[float, float]:
    """A figure in bytes and how far it may be off, from "49,152", "48 KiB" or "0.05 MB". A bare number is bytes.

    >>> read_bytes("48 KiB"), read_bytes(70_272)
    ((49152.0, 512.0), (70272.0, 35.136))
    """
    match = re.fullmatch(r"\s*([\d,_]*\.?\d+)\s*([kmg]?i?b)?\s*(?:(?:/|per|a)\s*token)?\s*", str(text), re.I)
    digits = match and match[1].replace(",", "").replace("_", "")
    if not match or not 0 < float(digits) < 1e15:
        raise SizingError(f"the figure is {str(text)[:40]!r}; write it as 49,152 or 48 KiB")
    unit = UNITS[(match[2] or "b").lower()]
    value = float(digits) * unit
    last = 0 if unit == 1 and "." not in digits else float(Decimal(1).scaleb(Decimal(digits).as_tuple().exponent)) * unit
    return value, max(last / 2, LEAST_MISS * value)


def diagnose(config: Any, figure: Any, *, tokens: int | None = None, kv_cache_dtype: str = "auto") -> Diagnosis:
    """Why a tool says ``figure`` for a model.

    Parameters
    ----------
    config : whatever :func:`kvlib.load_model` takes.
    figure : bytes, or a text such as "48 KiB"; its last digit says how exact it is.
    tokens : how many tokens the figure is for, in one request; None for the cost of one more token.
    kv_cache_dtype : the width that was asked of the tool.

    Raises SizingError on a figure or a length that cannot be read.

    >>> diagnose("DeepSeek-V3", 1_748_992).causes[0].slips
    ('mla_as_heads',)
    >>> diagnose("Qwen3-8B", "4.5 GiB", tokens=32_768).agrees
    'this is what a request of 32,768 tokens keeps'
    """
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= 1 << 30):
        raise SizingError(
            f"tokens is {tokens!r}; it must be a whole number of at least 1, or None for the cost of one more token"
        )
    model = config if isinstance(config, Model) else load_model(config)
    value, miss = read_bytes(figure)
    right = counted(model, (), kv_cache_dtype)
    reserved = _reserved(model, tokens, kv_cache_dtype)
    agrees = _agrees(value, miss, right, reserved, tokens)
    kept = _bytes(right, tokens)
    causes = () if agrees else tuple(_fewest(model, value, miss, tokens, kv_cache_dtype))
    apart = _telling(model, causes, kv_cache_dtype) if len(causes) > 1 else ""
    return Diagnosis(model.name, value, kept, reserved, tokens or 1, agrees, causes, apart)


def _bytes(count: Count, tokens: int | None) -> int:
    return count.bytes(tokens) if tokens else count.per_token


def _reserved(model: Model, tokens: int | None, kv_cache_dtype: str) -> int:
    """What vLLM's newest rules charge one request of that length; 0 where no length is given or it would refuse."""
    if not tokens:
        return 0
    try:
        return size(model, Engine(kv_cache_dtype=kv_cache_dtype, max_model_len=tokens), available_bytes=GiB).needed_bytes
    except SizingError:
        return 0


def _agrees(value: float, miss: float, right: Count, reserved: int, tokens: int | None) -> str:
    if tokens is None:
        more = f"; a request keeps {right.fixed / MiB:,.1f} MiB besides, whatever its length" if right.fixed else ""
        return f"this is what one more token costs{more}" if abs(value - right.per_token) <= miss else ""
    if abs(value - right.bytes(tokens)) <= miss:
        return f"this is what a request of {tokens:,} tokens keeps"
    if reserved and abs(value - reserved) <= miss:
        return f"this is what vLLM reserves for a request of {tokens:,} tokens, whole blocks and padding in it"
    if right.fixed and abs(value - tokens * right.per_token) <= miss:
        return (
            f"this is the growing part of {tokens:,} tokens; windows or states, up to {right.fixed / MiB:,.1f} MiB, are not in it"
        )
    return ""


def _causes(model: Model, tokens: int | None, kv_cache_dtype: str) -> Iterator[tuple[int, Cause]]:
    """Every explanation with the number of its slips."""
    for many in range(3):
        for slips in combinations(WORDS, many):
            try:
                count = counted(model, slips, kv_cache_dtype)
                idle = (
                    any(counted(model, rest, kv_cache_dtype) == count for rest in combinations(slips, many - 1))
                    if many
                    else False
                )
            except SizingError:
                continue
            if idle:  # one of them changes nothing on this model
                continue
            for factor in (None, *FACTORS):
                times = factor.times if factor else 1
                yield many + bool(factor), Cause(slips, factor, _bytes(count, tokens) * times)
            if tokens is None and many == 0:
                yield 1, Cause(slips, None, count.bytes(1), first_token=True)


def _fewest(model: Model, value: float, miss: float, tokens: int | None, kv_cache_dtype: str) -> list[Cause]:
    """The explanations with the fewest slips, those of the layers first. Where a bare factor would do, one with a slip
    more as well: two mistakes may half cancel."""
    fitting = [
        (many, cause) for many, cause in _causes(model, tokens, kv_cache_dtype) if many and abs(cause.bytes - value) <= miss
    ]
    least = min((many for many, _ in fitting), default=0)
    found = [cause for many, cause in fitting if many == least]
    if found and not any(cause.slips for cause in found):
        found += [cause for many, cause in fitting if many == least + 1 and cause.slips]
    return sorted(found, key=lambda cause: (not cause.slips and cause.factor is None, cause.factor is not None))


def _telling(model: Model, causes: tuple[Cause, ...], kv_cache_dtype: str) -> str:
    """Another model on which the first two explanations part."""
    for name in PROBES:
        if name == model.name:
            continue
        other = load_model(name)
        try:
            told = [
                counted(other, cause.slips, kv_cache_dtype).per_token * (cause.factor.times if cause.factor else 1)
                for cause in causes[:2]
            ]
        except SizingError:
            continue
        if abs(told[0] - told[1]) > 0.01 * max(told):
            first, second = (f"{each:,.0f}" for each in told)
            return f"Put {name} to your tool: it tells them apart ({first} or {second} B a token)."
    return ""
