"""What the sections of notebook 11 share: a sizing in one call, and the marks of where a figure comes from."""

from __future__ import annotations

import math
from functools import cache

from kvlib.capacity import Sizing, size
from kvlib.config import load_model
from kvlib.engine import Engine
from kvlib.model import Model
from kvlib.tables import Html, Table, mark
from kvlib.units import GiB

HYBRID = {"gpu": "A100 80GB SXM", "tensor_parallel_size": 2, "kv_cache_dtype": "fp8"}  # the hybrid note's launch of Qwen3.8-27B
HYBRID_GIB = 52.89
PASSES, REFUSED = "passes vLLM's memory checks", "refused"


@cache
def model(name: str) -> Model:
    """A model of the catalogue, read once."""
    return load_model(name)


def sized(name: str, available_gib: float, **flags) -> Sizing:
    """A model of the catalogue under flags and measured memory.

    >>> sized("Qwen3.8-27B", 52.89, max_model_len=132_096, **HYBRID).kv_cache_tokens
    3208045
    """
    return size(model(name), Engine(**flags), available_bytes=math.ceil(available_gib * GiB))


def right(shown: Table) -> Table:
    """The table with every column but the first at the right, for figures in markup."""
    return Table(shown.columns, shown.rows, shown.caption, shown.footer, shown.highlight, frozenset({shown.columns[0].key}))


def log(text) -> Html:
    """A figure that a log printed."""
    return mark(text, "measured")


def guess(text) -> Html:
    """A figure that rests on an assumption."""
    return mark(text, "assumed")


def outcome(sizing: Sizing) -> str:
    return PASSES if sizing.fits else f"{REFUSED}: {sizing.refusal.message}"
