"""Where a GPU's memory goes before the cache, and how sure each part is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

from .engine import Engine
from .errors import SizingError

TERMS = ("weights_bytes", "peak_activation_bytes", "non_torch_bytes", "cuda_graph_bytes")


@dataclass(frozen=True, slots=True)
class Band:
    """An assumed amount of memory in bytes: the least, the usual, the most seen, and where that comes from.

    >>> Band(1 << 30, 3 << 30, 6 << 30, "44 launches").typical >> 30
    3
    """

    low: int
    typical: int
    high: int
    source: str = ""

    def __post_init__(self):
        if not self.low <= self.typical <= self.high:
            raise SizingError(f"a band must rise from low to high, not {self.low:,}, {self.typical:,}, {self.high:,}")


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Memory of one GPU, in bytes. Each term is an int (measured or typed) or a :class:`Band` (assumed).

    ``total_bytes`` is what CUDA reports; ``free_bytes`` what is free when vLLM starts (None: not checked);
    ``assumed`` names the terms that are bands. A term may be negative: a process that shared memory with
    another can measure less than nothing.

    >>> budget = MemoryBudget(24 * 2**30, 15 * 2**30, peak_activation_bytes=Band(2**28, 2**29, 2**30, source="guessed"))
    >>> budget.assumed
    ('peak_activation_bytes',)
    """

    total_bytes: int | Band
    weights_bytes: int | Band
    peak_activation_bytes: int | Band = 0
    non_torch_bytes: int | Band = 0
    cuda_graph_bytes: int | Band = 0
    free_bytes: int | Band | None = None
    assumed: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        assumed = []
        for name in ("total_bytes", *TERMS, "free_bytes"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if isinstance(value, Band):
                assumed.append(name)
            elif not (whole or value is None and name == "free_bytes"):
                raise SizingError(f"{name} is {value!r}; it must be a whole number of bytes or a Band")
        object.__setattr__(self, "assumed", tuple(assumed))
        if at(self.total_bytes, "low") <= 0:
            raise SizingError(f"total_bytes is {self.total_bytes!r}; a GPU has more than none")

    def pick(self, side: str) -> MemoryBudget:
        """All ints: ``"typical"``, or the ``"least"`` or ``"most"`` cache that the bands allow."""
        return _picked(self, side) if self.assumed else self


@lru_cache(maxsize=4096)
def _picked(budget: MemoryBudget, side: str) -> MemoryBudget:
    memory, use = {"typical": ("typical", "typical"), "least": ("low", "high"), "most": ("high", "low")}[side]
    return MemoryBudget(at(budget.total_bytes, memory), *(at(getattr(budget, term), use) for term in TERMS),
                        None if budget.free_bytes is None else at(budget.free_bytes, memory))


def at(value: int | Band, side: str) -> int:
    """``value`` itself, or that side of a band."""
    return getattr(value, side) if isinstance(value, Band) else value


def requested_bytes(total_bytes: int, gpu_memory_utilization: float) -> int:
    """The share of the card that vLLM asks for, in bytes, rounded up (vllm/v1/worker/utils.py).

    >>> requested_bytes(100, 0.125)
    13
    """
    return math.ceil(total_bytes * gpu_memory_utilization)


def graph_bytes(engine: Engine, memory: MemoryBudget) -> int:
    """The CUDA graph estimate that is subtracted: none when eager, and none by default before 0.20."""
    if engine.enforce_eager or not engine.version.has("graph_estimate"):
        return 0
    return at(memory.cuda_graph_bytes, "typical")


def available_bytes(memory: MemoryBudget, engine: Engine, gpu_memory_utilization: float) -> int:
    """What is left for the cache: requested less weights, activations, non-torch memory and graphs.

    May be zero or less. Bands are taken at typical.
    """
    picked = memory.pick("typical")
    return (requested_bytes(picked.total_bytes, gpu_memory_utilization) - picked.weights_bytes
            - picked.peak_activation_bytes - picked.non_torch_bytes - graph_bytes(engine, picked))
